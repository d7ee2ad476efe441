"""Language models of a thousand weights and data for them."""

import keras
import numpy as np

from keras_adaptive.layers import AdaptiveSoftmax, CharCNN, WordEmbedding
from keras_adaptive.models import LanguageModel, WordModel, transformer, transformer_lm
from tests.support.backends import BACKEND
from tests.support.weights import randomize

VOCABULARY, LENGTH = 20, 6
WORDS = ["<s>", "<pad>", "</s>", "<unk>", *(f"word{i:x}" for i in range(VOCABULARY - 4))]


def language_model(vocabulary_size=VOCABULARY, **kwargs):
    """The same weights on every backend; of two bands, since each of them takes its time to compile."""
    sizes = {"dim": 8, "num_blocks": 1, "num_heads": 2, "ffn_dim": 12, "cutoffs": (5,), "factor": 2}
    model = randomize(transformer_lm(vocabulary_size, **{**sizes, **kwargs}))
    for variable in model.body.trainable_variables:
        variable.assign(0.3 * variable.value)
    return model


def system(name, dtype=None, output_dim=None, **characters):
    """Returns SM, SM-T, ASM, ASM-T or CNN with a thousand weights, the same on every backend.

    ASM-T is a softmax whose bands are slices of the input's table, with biases. CNN takes arguments of `CharCNN`.
    """
    if name == "CNN":
        words = CharCNN(WORDS, 6, char_dim=4, filters=(3, 4), max_bytes=8, dtype=dtype, **characters)
    else:
        words = WordEmbedding(VOCABULARY, 4, dtype=dtype)
    plain, tied = name.startswith("SM"), name.endswith("-T")
    output_dim = output_dim or (4 if plain or tied else None)
    body = transformer(num_blocks=1, dim=8, ffn_dim=12, num_heads=2, output_dim=output_dim, dtype=dtype)
    softmax = AdaptiveSoftmax(
        VOCABULARY,
        () if plain else (5,),
        factor=2,
        tied_to=words if tied else None,
        use_bias=name == "ASM-T",
        dtype=dtype,
    )
    model = randomize(LanguageModel(words, body, softmax))
    for variable in model.body.trainable_variables:
        variable.assign(0.3 * variable.value)
    return model


def word_model(embedding=None, body=None, word_output=None):
    """Returns a `WordModel` of a word embedding, no body and an adaptive softmax, or of the given layers."""
    ids = keras.Input((None,), dtype="int32")
    hidden = (embedding or WordEmbedding(VOCABULARY, 8))(ids)
    softmax = word_output or AdaptiveSoftmax(VOCABULARY, (5,), factor=2)
    return randomize(WordModel(ids, body(hidden) if body else hidden, word_output=softmax))


def compiled(model, optimizer="sgd", **kwargs):
    """Compiles a model and returns it. Few updates are quickest in TensorFlow's eager mode, which is the default."""
    model.compile(optimizer, **{"run_eagerly": BACKEND == "tensorflow", **kwargs})
    return model


def last(history):
    """Returns the last logs of a training."""
    return {name: values[-1] for name, values in history.history.items()}


def batch(rows, seed=0):
    """(tokens, targets, weights): random words, and rows that are padded to a third at different places."""
    random = np.random.default_rng(seed)
    stream = random.integers(0, VOCABULARY, (rows, LENGTH + 1)).astype("int32")
    weights = (np.arange(LENGTH) < random.integers(1, LENGTH + 1, (rows, 1))).astype("float32")
    return stream[:, :-1], stream[:, 1:], weights


def saved_and_loaded(model, path):
    model.save(path)
    return keras.saving.load_model(path)


def weights_of(model):
    return [np.array(keras.ops.convert_to_numpy(variable.value)) for variable in model.trainable_variables]


def largest_difference(model, other):
    """Returns the largest difference of two models' weights."""
    pairs = zip(weights_of(model), weights_of(other), strict=True)
    return max(np.abs(one - two).max() for one, two in pairs)
