"""Measures the speed and the peak memory of preparing a large corpus and batching its sentences, on Linux.

    python -m scripts.benchmarks.preparation --source=data/text --megabytes=1000 --processes=1,2 --sentences=30000000
    python -m scripts.benchmarks.preparation --megabytes=10000 --processes=2 --peers=datasets,fairseq   # made-up words

The program repeats `train.txt` of a folder, or made-up words, up to a size, prepares it once for each number of
processes, and compares the checksums of all tokens. The memory of the main process excludes its imports; the memory of
other processes includes them. `--peers` prepares the same text by other packages (`pip install datasets tokenizers`)
with the last number of processes. `--sentences` generates tokens of random sentences and times their index, the order
of an epoch and a batch.
"""

import functools
import os
import shutil
import tempfile
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
from absl import flags

from scripts.benchmarks import common, memory
from scripts.benchmarks.own_process import in_own_process
from scripts.benchmarks.peers.preparation import PEERS, measured
from trainers.support import command_line

FLAGS = flags.FLAGS


def define_flags():
    command_line.define_path("source", None, "Folder with train.txt, valid.txt and test.txt. By default made-up words.")
    flags.DEFINE_integer("megabytes", 1000, "Size of the text.", lower_bound=1)
    flags.DEFINE_list("processes", ["1", "2"], "Numbers of processes to try.")
    flags.DEFINE_list("peers", [], f"Other packages that prepare the text: {', '.join(PEERS)}.")
    flags.DEFINE_integer("subwords", 0, "Number of merges of a byte-pair encoding; 0 for words.", lower_bound=0)
    flags.DEFINE_integer("sentences", 0, "Number of sentences in the second part; 0 skips it.", lower_bound=0)
    command_line.define_path("folder", None, "Temporary folder for text and corpora, of 3 bytes per byte of text.")
    command_line.define_path("results", None, "JSON file to write. It needs a clean working tree.")


def repeat_text(source, folder, size):
    """Writes the text of a folder, with as much of `train.txt` as makes `size` bytes, in whole repetitions."""
    folder.mkdir()
    for name in ("valid.txt", "test.txt"):
        shutil.copy(Path(source, name), folder)
    text = Path(source, "train.txt").read_bytes()
    with open(folder / "train.txt", "wb") as file:
        while file.tell() < size:
            file.write(text)


def write_words(folder):
    """Writes 8 million words by Zipf's law, and little text for the other splits."""
    folder.mkdir()
    random = np.random.default_rng(1)
    for name, lines in (("train.txt", 400_000), ("valid.txt", 100), ("test.txt", 100)):
        ranks = (random.zipf(1.3, (lines, 20)) % 10**6).tolist()
        (folder / name).write_text("".join(" ".join(map("w{:x}".format, line)) + "\n" for line in ranks))
    return folder


class Watch(threading.Thread):
    """Reads ten times per second the peak memory of a process that this process started."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak = 0
        self._done = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self.join()

    def run(self):
        parent = Path("/proc/self/cmdline").read_bytes()
        while not self._done.wait(0.1):
            for tasks in Path("/proc/self/task").glob("*/children"):
                try:
                    for process in tasks.read_text().split():
                        # A forked process has the command line of its parent until it runs its program.
                        if Path(f"/proc/{process}/cmdline").read_bytes() != parent:
                            self.peak = max(self.peak, memory.status("VmHWM", process))
                except (OSError, StopIteration):  # the process has ended
                    continue


def time_preparation(texts, data_dir, processes):
    """Returns the figures of one preparation."""
    from keras_adaptive.data import load_corpus, prepare

    how = {"subwords": FLAGS.subwords, "processes": processes}
    with Watch() as others:
        start = time.perf_counter()
        peak = memory.peak_bytes(lambda: prepare(texts, data_dir, **how))
        seconds = time.perf_counter() - start
    corpus = load_corpus(data_dir)
    start = time.perf_counter()
    corpus.verify("train")
    return {
        "seconds": seconds,
        "bytes_per_second": os.path.getsize(texts / "train.txt") / seconds,
        "peak_bytes": peak,
        "peak_bytes_of_another_process": others.peak,
        "verify_seconds": time.perf_counter() - start,
        "token_bytes": sum(path.stat().st_size for path in Path(data_dir).glob("train*.tokens")),
    }


def time_peer(name, texts, folder, processes):
    """Returns the figures of a peer in a process of its own."""
    call, _ = in_own_process(_peer, name, str(texts / "train.txt"), str(folder), processes)
    folder.mkdir()
    figures = call()
    shutil.rmtree(folder)
    return figures | {"bytes_per_second": os.path.getsize(texts / "train.txt") / figures["seconds"]}


def _peer(*arguments):
    return functools.partial(measured, *arguments), None


def write_sentences(path, number):
    """Writes random words in sentences of 1 to 49 tokens, `</s>` included, as uint16."""
    random = np.random.default_rng(1)
    with open(path, "wb") as file:
        for start in range(0, number, 1 << 18):
            stops = np.cumsum(random.integers(1, 50, min(1 << 18, number - start)))
            tokens = random.integers(4, 60_000, stops[-1], np.uint16)
            tokens[stops - 1] = 2
            tokens.tofile(file)


def time_sentences(path):
    """Returns the time and the memory that NumPy and Python take for the batches of sentences."""
    from keras_adaptive.data import SentenceBatches

    tokens = np.memmap(path, np.uint16, "r")
    tracemalloc.start()
    start = time.perf_counter()
    batches = SentenceBatches(tokens, 4096, seed=1)
    index = {"seconds": time.perf_counter() - start, "peak_bytes": tracemalloc.get_traced_memory()[1]}
    start = time.perf_counter()
    batches.batch(0)
    order = {"seconds": time.perf_counter() - start, "bytes": tracemalloc.get_traced_memory()[0]}
    start = time.perf_counter()
    for _ in batches.batches(1, 101):
        pass
    times = {"batch_seconds": (time.perf_counter() - start) / 100, "peak_bytes": tracemalloc.get_traced_memory()[1]}
    tracemalloc.stop()
    return {"sentences": FLAGS.sentences, "tokens": len(tokens), "index": index, "order": order, **times}


def print_sentences(figures):
    peaks = [number / figures["sentences"] for number in (figures["index"]["peak_bytes"], figures["peak_bytes"])]
    print(
        f"{figures['sentences']:,} sentences: "
        f"index {figures['index']['seconds']:.1f} s, {peaks[0]:.1f} bytes per sentence; "
        f"order of an epoch {figures['order']['seconds']:.1f} s, {peaks[1]:.1f} bytes per sentence with the index; "
        f"a batch {1e3 * figures['batch_seconds']:.1f} ms"
    )


def main():
    results = {"preparation": {}}
    with tempfile.TemporaryDirectory(dir=FLAGS.folder) as folder:
        texts = Path(folder, "text")
        repeat_text(FLAGS.source or write_words(Path(folder, "words")), texts, FLAGS.megabytes * 10**6)
        results["text_bytes"] = os.path.getsize(texts / "train.txt")
        for processes in FLAGS.processes:
            data_dir = Path(folder, "corpus")
            results["preparation"][processes] = time_preparation(texts, data_dir, int(processes))
            shutil.rmtree(data_dir)
        if FLAGS.peers:
            most = int(FLAGS.processes[-1])
            results["peers"] = {name: time_peer(name, texts, Path(folder, name), most) for name in FLAGS.peers}
        shutil.rmtree(texts)
        if FLAGS.sentences:
            write_sentences(Path(folder, "tokens"), FLAGS.sentences)
            results["sentences"] = time_sentences(Path(folder, "tokens"))
    columns = ["bytes_per_second", "peak_bytes", "peak_bytes_of_another_process", "verify_seconds"]
    rows = [
        [number, *(f"{figures[name] / scale:.1f}" for name, scale in zip(columns, (1e6, 1e6, 1e6, 1)))]
        for number, figures in results["preparation"].items()
    ]
    header = [f"processes, {results['text_bytes'] / 1e6:,.0f} MB", "MB/s", "peak MB", "another's MB", "verify s"]
    rows += [
        [name, f"{figures['bytes_per_second'] / 1e6:.1f}", *3 * [""]]
        for name, figures in results.get("peers", {}).items()
    ]
    common.print_table(header, rows)
    if FLAGS.sentences:
        print_sentences(results["sentences"])
    common.save(("subwords",), **results)


if __name__ == "__main__":
    common.run(main, define_flags)
