"""Models that mix a memory with their probabilities wherever they predict, such as in generation."""

from keras import ops

from keras_adaptive.backend.on_host import on_host
from keras_adaptive.layers.bodies.body import Body
from keras_adaptive.layers.outputs.output import Output
from keras_adaptive.memory.memory import Memory
from keras_adaptive.models import LanguageModel


def remembering(model: LanguageModel, memory: Memory) -> LanguageModel:
    """Returns a model for prediction whose probabilities are mixed with those of a memory.

    Its methods are those of a `LanguageModel`: `score`, `alternatives`, `generate`, `stream` and others. Each place is
    looked up in the memory, also in compiled functions. It is neither trained nor saved.

    Args:
        model: The `LanguageModel` that the memory belongs to.
        memory: A `Memory`.

    Reference:
        Wang et al., KNN-LM Does Not Improve Open-ended Text Generation, EMNLP 2023.

    Example:

    >>> sizes = {"dim": 16, "num_blocks": 1, "num_heads": 2, "ffn_dim": 32, "cutoffs": ()}
    >>> model, text = transformer_lm(1_000, **sizes), np.random.randint(0, 1_000, size=(8, 6))
    >>> keys = model.keys(text[:, :-1]).reshape(-1, 16)
    >>> memory = Memory([(keys, text[:, 1:].ravel())], neighbors=4, temperature=0.1, share=0.5)
    >>> remembering(model, memory).generate(text[:1, :4], length=10, seed=1).shape
    (1, 10)
    """
    dim = model.outputs[0].shape[-1]
    body, output = _WithKeys(model.body, dim + memory.dim), _Remembering(model.word_output.for_inference(), memory, dim)
    return LanguageModel(model.word_input, body, output, trained_length=model.trained_length)


class _WithKeys(Body):
    """Body whose hidden states are followed by the keys of a memory, in float32."""

    def __init__(self, body, output_dim):
        super().__init__(dtype="float32", name="with_keys")
        self.body = body
        self.output_dim = output_dim
        self.max_length = body.max_length
        self.extrapolates = body.extrapolates

    def initial_state(self, batch_size, length=None):
        return self.body.initial_state(batch_size, length)

    def step(self, x, state, training=False):
        hidden, keys, state = self.body.step_with_keys(x, state)
        return _joined(hidden, keys), state

    def call(self, x, training=None):
        return _joined(*self.body.call_with_keys(x))


class _Remembering(Output):
    """Probabilities of an output, given its hidden states, mixed with those of a memory, given its keys."""

    def __init__(self, output, memory, dim):
        super().__init__(dtype="float32")
        self.of_model = output
        self.memory = memory
        self.dim = dim
        self.vocabulary_size = output.vocabulary_size
        self.boundaries = output.boundaries

    def compute_nll(self, x, targets):
        nll = self.of_model.nll(x[:, : self.dim], targets)
        mixed = on_host(self.memory.nll, nll.shape, x[:, self.dim :], targets, nll)
        return ops.where(targets < 0, 0.0, mixed)

    def compute_log_probs(self, x):
        rows = ops.reshape(x, [-1, x.shape[-1]])
        log_probs = self.of_model.log_probs(rows[:, : self.dim])
        mixed = on_host(self.memory.log_probs, log_probs.shape, rows[:, self.dim :], log_probs)
        return ops.reshape(mixed, (*ops.shape(x)[:-1], self.vocabulary_size))


def _joined(hidden, keys):
    return ops.concatenate([ops.cast(hidden, "float32"), ops.cast(keys, "float32")], axis=-1)
