"""Writes a memory of a text for evaluate, score and generate: what a run has read, and which words followed (kNN-LM).

python -m trainers.remember --run_dir=runs/mine --memory=memories/mine
python -m trainers.evaluate --run_dir=runs/mine --memory=memories/mine --split=test

--split, which may be a text file, or another --data_dir with the same vocabulary chooses another text, which adapts the
model to it without training. The number of neighbors, the temperature and the share of the memory are those of the
lowest loss on the valid text of the corpus. A command that was interrupted goes on where it was. A token takes 2 ·
dimension + 4 bytes. With --index, the search is approximate, and much faster in a memory of many millions of tokens.
"""

import numpy as np
from absl import flags

from keras_adaptive.data import EOS
from keras_adaptive.files import read_text_lines
from keras_adaptive.memory import Memory, datastore
from keras_adaptive.memory.memory import NEIGHBORS
from keras_adaptive.models.reading import reading_of, state_grows
from trainers.evaluate import DATA_DIR
from trainers.experiments.memories import check_other_text
from trainers.experiments.run_folder import RunFolder
from trainers.experiments.word_losses import Blocks, digest
from trainers.support import command_line
from trainers.support.progress import Progress

FLAGS = flags.FLAGS


def define_flags():
    command_line.define_path("run_dir", None, "Folder of a trained run.", required=True)
    command_line.define_path("memory", None, "Folder of the memory to write.", required=True)
    command_line.define_path("data_dir", None, DATA_DIR)
    flags.DEFINE_string("split", "train", "Split to remember: train, valid or test; or the path of a text file.")
    flags.DEFINE_integer(
        "neighbors", None, f"Largest number of neighbors; by default {NEIGHBORS:,}, or all of fewer keys.", 1, 2**20
    )
    flags.DEFINE_string(
        "index",
        None,
        "Index of faiss that finds the neighbors, approximately and fast: a string of its factory, such as "
        "IVF4096,PQ64. Without it, every key is compared.",
    )


def read_text(run, corpus, split):
    """Returns the ids of a split or of a text file, and the digest of the text."""
    if split in corpus.metadata["splits"]:
        corpus.verify(split)
        return corpus.tokens(split), corpus.metadata["splits"][split]["sha256"]
    codec = run.codec
    with open(split, "rb") as file:
        lines = read_text_lines(file, split, keeps_mark=codec.keeps_mark)
        ids = [np.append(codec.encode(codec.tokenize(line)), EOS) for line in lines]
    if not ids:
        raise ValueError(f"--split={split} must be a split of the corpus, or a text file with at least one line.")
    return np.concatenate(ids, dtype="int32"), digest(split)


def main():
    run = RunFolder(FLAGS.run_dir)
    corpus = run.corpus(FLAGS.data_dir)
    corpus.verify("valid")
    tokens, text = read_text(run, corpus, FLAGS.split)
    check_other_text(text, corpus.metadata["splits"]["valid"]["sha256"])
    model = run.model().for_inference()
    identity = {"model": digest(run.model_file()), "vocabulary": corpus.vocabulary.sha256, "text": text}
    reading = reading_of(model, None if state_grows(model.body) else run.length)
    blocks = Blocks("tokens", reading.block, reading.context, 16)
    if FLAGS.neighbors and FLAGS.neighbors > len(tokens):
        raise ValueError(
            f"--neighbors must be at most {len(tokens):,}, the number of tokens of {FLAGS.split}. "
            f"Received: --neighbors={FLAGS.neighbors}."
        )
    report = Progress(f"tokens of {FLAGS.split}")
    Memory.build(FLAGS.memory, model, tokens, blocks.size, blocks.context, identity=identity, report=report)
    datastore.write_its_index(FLAGS.memory, FLAGS.index)
    memory = Memory.load(FLAGS.memory)
    memory.neighbors = FLAGS.neighbors or memory.neighbors
    losses = []

    def tune(keys, targets, nll):
        losses.extend([nll.mean(), memory.tune(keys, targets, nll)])
        return nll

    blocks.word_losses(model, corpus, "valid", "valid, for the memory", mix=tune, keys=True)
    memory.save_settings(FLAGS.memory)
    print(
        f"Wrote {FLAGS.memory}: {len(memory):,} keys. Tuned on valid, {losses[0]:.4f} to {losses[1]:.4f} nats: "
        f"{memory.neighbors:,} neighbors, temperature {memory.temperature:.3g}, share {memory.share}"
    )


if __name__ == "__main__":
    command_line.run(main, define_flags)
