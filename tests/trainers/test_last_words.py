"""Last words of passages: against the probabilities of all words, and by class; and passages drawn for them."""

import json
import sys
import types

import numpy as np
import pytest

from keras_adaptive.data import EOS, SPLITS, Vocabulary, draw_passages, load_corpus
from tests.support.programs import call
from tests.support.refusals import refused
from tests.support.served import write_run
from tests.support.text import prepared
from tests.support.tiny import WORDS, language_model
from trainers import last_words, passages
from trainers.experiments.run_folder import RunFolder

pytestmark = [pytest.mark.usefixtures("models_read_once"), pytest.mark.once]
COUNTS = [9, 0, 9, 9, *range(1506, 1494, -1), *[4] * 4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs of one model, one without counts of words, a run of characters, and no spaCy."""
    folder, model = tmp_path_factory.mktemp("runs"), language_model()
    write_run(folder / "run", model, Vocabulary(WORDS, COUNTS))
    write_run(folder / "uncounted", model, Vocabulary(WORDS, [0] * len(WORDS)))
    write_run(folder / "characters", model, Vocabulary(WORDS, COUNTS), "characters", "character")
    return folder


@pytest.fixture(autouse=True)
def no_spacy(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)


@pytest.fixture(scope="module")
def texts(folder):
    """Passages of 2 to 40 words; every second one ends with the model's choice, and two outside the vocabulary."""
    random, model = np.random.default_rng(0), RunFolder(folder / "run").model()
    made = []
    for number, length in enumerate(range(2, 41)):
        words = random.choice(WORDS[4:], length).tolist()
        ids = [WORDS.index(word) for word in words]
        best = int(np.argmax(model.log_probs(np.array([[EOS, *ids[:-1]][-model.trained_length :]]))[0, -1]))
        words[-1] = WORDS[best] if number % 2 and best > 3 else words[-1]
        made.append(words)
    made[10][-1], made[11][-1] = "unseen", "<unk>"
    return made


@pytest.fixture
def file(tmp_path, texts):
    path = tmp_path / "passages.txt"
    path.write_text("".join(f"{' '.join(words)}\n" for words in texts), encoding="utf-8")
    return path


def right(model, words, context=None):
    """Whether the most probable word of the last place is the last word, of the last tokens alone."""
    ids = [WORDS.index(word) if word in WORDS else 3 for word in words]
    log_probs = model.log_probs(np.array([[EOS, *ids[:-1]][-(context or len(ids)) :]]))[0, -1]
    return ids[-1] > 3 and int(np.argmax(log_probs)) == ids[-1], log_probs[ids[-1]] if ids[-1] > 3 else None


@pytest.mark.parametrize("context", [None, 7])
def test_accuracy_is_that_of_the_most_probable_words(folder, texts, file, tmp_path, capsys, context):
    output, model = tmp_path / "out.json", RunFolder(folder / "run").model()
    flags = [f"--context={context}"] if context else []
    call(last_words, f"--run_dir={folder}/run", f"--passages={file}", f"--output={output}", "--batch_size=5", *flags)
    (result,) = json.loads(output.read_text())["runs"]
    found = [right(model, words, context or model.trained_length) for words in texts]
    hits, log_probs = np.array([hit for hit, _ in found]), [value for _, value in found if value is not None]
    assert 0 < hits.sum() < len(texts) and result["accuracy"]["all"] == pytest.approx(hits.mean())
    frequent = np.array([words.count(words[-1]) > 2 for words in texts])
    counts = dict(zip(WORDS[4:], COUNTS[4:]))
    rare = np.array([counts.get(words[-1], 0) < 1500 for words in texts])
    assert result["accuracy"]["context_frequent"] == pytest.approx(hits[frequent].mean())
    assert result["accuracy"]["low_frequency"] == pytest.approx(hits[rare].mean())
    sizes = {"all": len(texts), "context_frequent": frequent.sum(), "low_frequency": rare.sum()}
    assert result["passages"] == sizes and 0 < frequent.sum() < rare.sum() < len(texts)
    assert result["perplexity"] == pytest.approx(np.exp(-np.mean(log_probs)), rel=1e-4)
    assert (result["outside_vocabulary"], result["shortened"]) == (2, 33 if context else 32)
    header, line, *rest = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "all", "CF", "LF", "perplexity"]
    assert f"{100 * hits.mean():.2f} of 39" in line and "2 last words are outside the vocabulary" in rest[0]
    assert f"run: only the last tokens of {result['shortened']} long passages were read" in rest[1]
    assert rest[-2:] == ["Ent. is omitted: it needs spaCy and its model en_core_web_sm", f"Written to {output}"]


def test_several_runs_have_a_row_each(folder, file, capsys):
    call(last_words, f"--run_dir={folder}/run,{folder}/uncounted", f"--passages={file}")
    _, first, second, *rest = capsys.readouterr().out.splitlines()
    assert first.split()[1] == second.split()[1] and second.split()[-2] == "-"
    assert f"{folder}/uncounted: LF is omitted, since its vocabulary has no counts of words" in rest


def test_named_entities_are_those_of_spacy(folder, file, texts, capsys, monkeypatch):
    name = texts[0][-1]

    class Doc(list):
        def __init__(self, vocab, words):
            super().__init__(types.SimpleNamespace(ent_type_="PERSON" if word == name else "") for word in words)

    spacy = types.ModuleType("spacy")
    spacy.tokens = types.SimpleNamespace(Doc=Doc)
    spacy.load = lambda name: types.SimpleNamespace(vocab=name, pipe=iter)
    monkeypatch.setitem(sys.modules, "spacy", spacy)
    call(last_words, f"--run_dir={folder}/run", f"--passages={file}")
    header, line, *rest = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "all", "CF", "LF", "Ent.", "perplexity"]
    assert line.split()[-2] == str(sum(words[-1] == name for words in texts)) and "spaCy" not in "".join(rest)
    spacy.load = lambda name: (_ for _ in ()).throw(OSError("[E050] Can't find model"))
    call(last_words, f"--run_dir={folder}/run", f"--passages={file}")
    assert "Ent. is omitted" in capsys.readouterr().out


def test_every_piece_of_a_sub_word_must_be_right(tmp_path, capsys, monkeypatch):
    corpus = prepared(tmp_path / "text", "low lower slow slower\n" * 3, subwords=3)
    model = language_model(len(corpus.vocabulary))
    run = write_run(tmp_path / "run", model, corpus.vocabulary, "whitespace", "sub-word", corpus.subwords())
    wrong = corpus.vocabulary.encode(next(corpus.subwords().pieces(["lower"]))[-1:])

    def score_rows(model, rows):
        return [(np.full(len(ids), -0.5), 1 + np.isin(ids, wrong)) for _, ids in rows]

    monkeypatch.setattr(last_words, "score_rows", score_rows)
    (tmp_path / "file").write_text("slow lower slow\nlow low lower\nslow slow low\nlower </s> <unk>\n")
    call(last_words, f"--run_dir={run.path}", f"--passages={tmp_path / 'file'}", f"--output={tmp_path / 'out'}")
    (result,) = json.loads((tmp_path / "out").read_text())["runs"]
    pieces = [len(parts) for parts in corpus.subwords().pieces(["slow", "lower", "low"])]
    assert result["accuracy"] == {"all": 0.5, "context_frequent": None} and max(pieces) > 1
    assert result["perplexity"] == pytest.approx(np.exp(0.5 * np.mean(pieces))) and result["outside_vocabulary"] == 1


UNKNOWN = "The vocabulary of .*run contains none of the last words of .*passages.txt: pass"
BAD = [
    (b"", [], "passages.txt is empty: it must contain one passage per line"),
    (b"word1 word2\nword3\n", [], "Line 2 of .* must have at least two words, .* Received: 1"),
    (b"word1 word2\n\n", [], "Line 2 of .* Received: 0"),
    (b"word1 cat\nword2 <unk>\n", [], UNKNOWN),
    (b"word1 \xff\n", [], "Line 1 of .* is not UTF-8"),
    (b"word1 word2\n", ["--run_dir=FOLDER/run,FOLDER/none"], "none holds no run"),
    (b"word1 word2\n", ["--model=last"], "holds no last.keras yet"),
    (b"word1 word2\n", ["--run_dir=FOLDER/characters"], "must be a run of words or sub-words. Received: .*=characters"),
    (b"word1 word2\n", ["--output=FILE"], "must be new, or an older result .*a file that is not such a result"),
    (b"word1 word2\n", ["--passages=/nowhere"], "No such file or directory: '/nowhere'"),
    (b"word1 word2\n", ["--context=0"], "context=0"),
]


@pytest.mark.parametrize("content, flags, match", BAD, ids=lambda one: repr(one)[:40])
def test_bad_input_is_refused_before_anything_is_written(folder, tmp_path, content, flags, match):
    file, output = tmp_path / "passages.txt", tmp_path / "out.json"
    file.write_bytes(content)
    output.write_text("older")
    flags = [flag.replace("FOLDER", str(folder)).replace("FILE", str(file)) for flag in flags]
    refused(last_words, f"--run_dir={folder}/run", f"--passages={file}", f"--output={output}", *flags, match=match)
    assert output.read_text() == "older" and file.read_bytes() == content


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    random, words = np.random.default_rng(0), [*(f"word{i}" for i in range(100)), *10 * [".", "\n"]]
    texts = {split: " ".join(random.choice(words, 10_000)) + "\n" for split in SPLITS}
    return prepared(tmp_path_factory.mktemp("text"), "", min_count=83, **texts)


@pytest.mark.parametrize("kind", ["control", "broad"])
def test_drawn_passages_are_read_as_they_were(corpus, tmp_path, capsys, kind):
    file = tmp_path / "new" / "drawn.txt"
    call(passages, f"--data_dir={corpus.data_dir}", f"--kind={kind}", "--count=7", "--seed=3", f"--output={file}")
    expected = draw_passages(load_corpus(corpus.data_dir), "test", 7, broad=kind == "broad", seed=3)
    mean = np.mean(list(map(len, expected)))
    assert capsys.readouterr().out == f"Written to {file}: 7 passages ({kind}) of {mean:.1f} words on average\n"
    run = write_run(tmp_path / "run", language_model(), corpus.vocabulary, "words")
    with open(file, encoding="utf-8") as lines, pytest.MonkeyPatch.context() as patched:
        patched.setattr(last_words, "FLAGS", types.SimpleNamespace(passages=file))
        read = last_words.read_passages(run, lines.read().splitlines())
    decoded = [corpus.vocabulary.decode(ids) for ids in read.ids]
    assert decoded == expected and "<unk>" in sum(expected, []) and "</s>" in sum(expected, [])
    assert not read.outside.any() and (kind == "control" or read.classes["context_frequent"].all())


def test_too_many_passages_leave_the_file_as_it_is(corpus, tmp_path):
    file = tmp_path / "drawn.txt"
    file.write_text("older")
    refused(passages, f"--data_dir={corpus.data_dir}", "--count=99999", f"--output={file}", match="`count` must be at")
    refused(passages, f"--data_dir={tmp_path}", f"--output={file}", match="holds no corpus")
    assert file.read_text() == "older" and len(list(tmp_path.iterdir())) == 1
