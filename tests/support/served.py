"""Small runs of every unit, and a server of them."""

import contextlib
import threading

from keras_adaptive.data import Subwords, Vocabulary
from keras_adaptive.data.codecs.words import recorded
from tests.support.tiny import WORDS, language_model, system
from trainers import serve
from trainers.experiments.run_folder import RunFolder

ADDRESS = "http://localhost:8000"
COUNTS = [*(0 for _ in range(4)), *(1000 - 60 * number for number in range(16))]


def write_run(path, model, vocabulary, tokenizer="whitespace", unit="word", merges=None, flags="--length=8\n"):
    """Writes the folder of a run, as training would."""
    run = RunFolder(path)
    path.mkdir(parents=True)
    facts = {"size": len(vocabulary), "sha256": vocabulary.sha256}
    metadata = {"source": "none", **recorded(tokenizer), "unit": unit, "vocabulary": facts}
    if merges:
        merges.save(path / "merges.txt")
        metadata["merges"] = {"number": len(merges.merges), "sha256": merges.sha256}
    run.write(flags, vocabulary, metadata)
    model.trained_length = 8
    model.save(path / "best.keras")
    return run


def write_runs(root):
    """Writes runs of every unit, and returns their paths by name."""
    words = Vocabulary(WORDS, COUNTS)
    letters = Vocabulary.from_counts({letter: 9 for letter in " abcdefghijklmnopqrstuvwxyz"})
    symbols = Vocabulary.from_counts({symbol: 9 for symbol in "Ġabcdeorw0123456789Ã©"})
    merges = Subwords.learn({"word1": 5, "word2": 5}, merges=4)
    pieces = merges.vocabulary({"word1": 5, "word2": 5})
    write_run(root / "words", language_model(), words)
    write_run(root / "others", system("ASM-T"), words, "words")
    write_run(root / "letters", language_model(len(letters)), letters, "characters", "character")
    write_run(root / "bytes", language_model(len(symbols)), symbols, "bytes", "byte")
    write_run(root / "pieces", language_model(len(pieces)), pieces, "words", "sub-word", merges)
    write_run(root / "cnn", system("CNN"), words)
    return {path.name: path for path in root.iterdir()}


@contextlib.contextmanager
def served(page):
    """Yields the port of a real server of a page, which runs in a thread."""
    page.warm_up()
    with contextlib.closing(serve.listen("127.0.0.1", 0)) as listening:
        server = serve.server(page.app())
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
