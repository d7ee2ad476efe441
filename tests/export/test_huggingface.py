"""Exports for transformers against the live model: log-probabilities, loss, cache, padding and tokens."""

import json

import keras
import numpy as np
import pytest

from keras_adaptive.data import Subwords, TextCodec, Vocabulary
from keras_adaptive.data.codecs.words import TOKENIZERS
from keras_adaptive.export import export_huggingface
from tests.support.exported_models import CODEC, LENGTH, MODELS, REFUSED, refused_models
from tests.support.tiny import VOCABULARY, language_model
from tests.support.transformers import load_exported

pytestmark = pytest.mark.once


@pytest.mark.parametrize("name", sorted(MODELS.keys() - REFUSED))
def test_answers_are_those_of_the_model(name, tmp_path):
    import torch

    model = MODELS[name]()
    export_huggingface(model, CODEC, tmp_path / "new")
    exported = load_exported(tmp_path / "new")
    ids = np.random.default_rng(1).integers(0, VOCABULARY, (2, LENGTH)).astype("int32")
    expected = keras.ops.convert_to_numpy(model.for_inference().log_probs(ids))
    tokens, bounds = torch.from_numpy(ids).long(), (0, 5, 6, LENGTH)
    with torch.no_grad():
        np.testing.assert_allclose(exported(tokens).logits, expected, atol=1e-4)
        cache, parts = None, []
        for low, high in zip(bounds, bounds[1:]):
            _, logits, cache = exported(tokens[:, low:high], cache=cache, use_cache=True)
            parts.append(logits)
        np.testing.assert_allclose(torch.cat(parts, 1), expected, atol=1e-4)
        for padding in ((3, 0), (0, 3)):
            padded, mask = (torch.nn.functional.pad(t, padding) for t in (tokens, torch.ones_like(tokens)))
            labels = torch.nn.functional.pad(tokens, padding, value=-100)
            logits = exported(padded, attention_mask=mask).logits[:, padding[0] :][:, :LENGTH]
            np.testing.assert_allclose(logits, expected, atol=1e-4)
            loss, logits, _ = exported(padded, attention_mask=mask, labels=labels)
            targets = np.take_along_axis(expected[:, :-1], ids[:, 1:, None], -1)
            assert logits is None and float(loss) == pytest.approx(-targets.mean(), abs=1e-4)
        assert exported(tokens, logits_to_keep=1).logits.shape == (2, 1, VOCABULARY)


def test_parts_without_a_module_are_refused_by_name(tmp_path):
    for model, named in refused_models():
        with pytest.raises(ValueError, match=f"Received: {named}, which it lacks"):
            export_huggingface(model, CODEC, tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_wrong_arguments_are_refused(tmp_path):
    model = language_model()
    for folder, options, message in (
        ("new", {"dtype": "float16"}, "`dtype` must be float32 or bfloat16"),
        ("new", {"window": 0}, "`window` must be a whole number of at least 1"),
        ("", {}, "must be empty. Received: .*the working directory|must not exist or must be empty"),
    ):
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match=message):
            export_huggingface(model, CODEC, tmp_path / folder if folder else tmp_path / "file", **options)
    with pytest.raises(ValueError, match=f"{tmp_path} exists and is not empty"):  # before the weights are written
        export_huggingface(model, CODEC, tmp_path)
    with pytest.raises(ValueError, match="`codec` must have the 24 words of the model"):
        export_huggingface(language_model(24), CODEC, tmp_path / "new")


def test_bfloat16_halves_the_weights(tmp_path):
    model = language_model()
    sizes = []
    for dtype in ("float32", "bfloat16"):
        export_huggingface(model, CODEC, tmp_path / dtype, dtype=dtype, window=6)
        sizes.append((tmp_path / dtype / "model.safetensors").stat().st_size)
        config = json.loads((tmp_path / dtype / "config.json").read_text(encoding="utf-8"))
        assert (config["dtype"], config["max_position_embeddings"]) == (dtype, 6)
    assert sizes[0] - sizes[1] == pytest.approx(2 * model.count_params(), abs=100)  # the header has other numbers
    first, second = (load_exported(tmp_path / dtype).state_dict() for dtype in ("float32", "bfloat16"))
    for key, array in first.items():
        assert (array.bfloat16().float() == second[key]).all()


IN_PIECES = [("whitespace", True), ("words", True)]
LINES = [
    "It was  the best\u00a0of\u2003times\n",
    "It was\r\n\nthe naïve qqq\r",
    "don't 'quote' 3.14 ... e\u0301 👍🏽 x\u200dy a_b",
    "</s> was <unk> it",
    " \x1c\x85 ",
    "",
    "日本語 हिन्दी col·legi -- >>",
]


@pytest.mark.parametrize(
    "name, pieces", [*((name, False) for name in TOKENIZERS), ("whitespace", True), ("words", True)]
)
def test_tokens_are_those_of_the_codec(name, pieces, tmp_path):
    from tokenizers import Tokenizer

    lines = LINES if name in ("whitespace", "ptb_characters") else [line for line in LINES if "</s>" not in line]
    counts = {token: 2 for line in lines[::2] for token in TOKENIZERS[name](line.replace("\n", " "))}
    subwords = Subwords.learn(counts, 20) if pieces else None
    vocabulary = subwords.vocabulary(counts) if pieces else Vocabulary.from_counts(counts)
    codec = TextCodec(vocabulary, name, subwords)
    export_huggingface(language_model(len(vocabulary)), codec, tmp_path / "new")
    tokenizer = Tokenizer.from_file(str(tmp_path / "new" / "tokenizer.json"))
    for line in lines:
        encoding = tokenizer.encode(line)
        assert encoding.ids == [2, *codec.encode(codec.tokenize(line))], line
        assert tokenizer.encode(line, add_special_tokens=False).ids == encoding.ids[1:]
