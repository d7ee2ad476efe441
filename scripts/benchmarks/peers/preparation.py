"""Text to token ids by other packages, with the words that `prepare` keeps: `PEERS[name](text, folder, processes)`.

The functions return the number of tokens, without ends of lines where the package writes none.
"""

import collections
import itertools
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np

_BATCH = 1000  # lines
_MIN_COUNT = 3


def datasets(text, folder, processes):
    """Prepares a text by `datasets` and `tokenizers`: a dictionary of words, learned on the text, and `map` with it."""
    import datasets
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    os.environ["RAYON_NUM_THREADS"] = str(processes)
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    how = {"vocab_size": 10**8, "min_frequency": _MIN_COUNT, "special_tokens": special, "show_progress": False}
    tokenizer.train([str(text)], trainers.WordLevelTrainer(**how))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # `map` has processes of its own
    datasets.disable_progress_bars()
    lines = datasets.load_dataset("text", data_files=str(text), split="train", cache_dir=str(folder / "cache"))

    def encode(batch):
        return {"input_ids": [encoding.ids for encoding in tokenizer.encode_batch(batch["text"])]}

    how = {"batched": True, "batch_size": _BATCH, "num_proc": processes, "remove_columns": ["text"]}
    encoded = lines.map(encode, **how, cache_file_name=str(folder / "encoded.arrow"))
    return sum(len(chunk.values) for chunk in encoded.data.column("input_ids").chunks)


def fairseq(text, folder, processes):
    """Prepares a text as `fairseq-preprocess` does: its lines are split twice, to count words and to look them up."""
    bounds = _bounds(text, processes)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        counts = sum(pool.starmap(_count, [(text, *ends) for ends in bounds]), collections.Counter())
        kept = (word for word, count in counts.most_common() if count >= _MIN_COUNT)
        words = {word: number for number, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *kept])}
        calls = [(text, *ends, words, folder / f"{number}.bin") for number, ends in enumerate(bounds)]
        return sum(pool.starmap(_encode, calls))


PEERS = {"datasets": datasets, "fairseq": fairseq}


def _bounds(text, number):
    """Returns the (start, stop) of equal parts of a text, which begin at lines."""
    size, cuts = os.path.getsize(text), [0]
    with open(text, "rb") as file:
        for part in range(1, number):
            file.seek(part * size // number)
            file.readline()
            cuts.append(file.tell())
    return list(itertools.pairwise([*cuts, size]))


def _lines(text, start, stop):
    with open(text, "rb") as file:
        file.seek(start)
        while file.tell() < stop:
            yield file.readline().decode().split()


def _count(text, start, stop):
    counts = collections.Counter()
    for words in _lines(text, start, stop):
        counts.update(words)
        counts["</s>"] += 1
    return counts


def _encode(text, start, stop, words, path):
    tokens, unknown = 0, words["<unk>"]
    with open(path, "wb") as file:
        for line in _lines(text, start, stop):
            ids = np.array([*(words.get(word, unknown) for word in line), words["</s>"]], np.int32)
            ids.tofile(file)
            tokens += len(ids)
    return tokens


def measured(name, text, folder, processes):
    """Calls a peer, and returns its seconds and its number of tokens, without the time of imports."""
    if name == "datasets":
        import datasets  # noqa: F401
        import tokenizers  # noqa: F401
    start = time.perf_counter()
    tokens = PEERS[name](Path(text), Path(folder), processes)
    return {"seconds": time.perf_counter() - start, "tokens": tokens}
