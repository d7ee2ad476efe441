"""Continues a prompt, word by word or, in a run of sub-words, piece by piece.

python -m trainers.generate --run_dir=runs/quickstart --prompt="The function returns" --length=50 --seed=1
"""

import sys

import numpy as np
from absl import flags

from keras_adaptive.data import EOS
from trainers import command_line
from trainers.run_folder import RunFolder

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_string("run_dir", None, "Folder of a trained run.", required=True)
    flags.DEFINE_string("prompt", "", "Text to continue; it is read as the start of a line.")
    flags.DEFINE_integer("length", 50, "Words, or pieces of words, to generate.", lower_bound=1)
    flags.DEFINE_float("temperature", 1.0, "Below 1 sharpens the distribution, 0 takes the most probable word.", 0)
    flags.DEFINE_integer("top_k", None, "Draw among the k most probable words only.", lower_bound=1)
    flags.DEFINE_integer("seed", None, "One seed gives one text.", lower_bound=0)
    flags.DEFINE_bool("open_vocabulary", False, "Unknown words of the prompt enter by their bytes (char_cnn models).")
    flags.DEFINE_enum("model", "best", ["best", "last"], "Which of the run's models.")


def main():
    run = RunFolder(FLAGS.run_dir)
    vocabulary = run.vocabulary()
    tokens = run.tokenize()(FLAGS.prompt)
    unknown = vocabulary.unknown(tokens)
    if unknown:
        way = "by their bytes" if FLAGS.open_vocabulary else "as <unk>"
        print(f"Not in the vocabulary, read {way}: {' '.join(unknown)}", file=sys.stderr)
    extra = list(dict.fromkeys(unknown)) if FLAGS.open_vocabulary else None
    model = run.model(FLAGS.model).for_inference(extra)
    prompt = np.concatenate([[EOS], vocabulary.encode(tokens, extra or ())])[None]
    print("".join(run.join(tokens))[1:], end="", flush=True)
    stream = model.stream(prompt, FLAGS.length, FLAGS.temperature, FLAGS.top_k, FLAGS.seed)
    for text in run.join(vocabulary.words[ids[0]] for ids in stream):
        print(text, end="", flush=True)
    print()


if __name__ == "__main__":
    command_line.run(main, define_flags)
