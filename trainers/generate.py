"""Continues a prompt word by word (piece by piece in a run of sub-words), or a file of prompts in batches.

python -m trainers.generate --run_dir=runs/quickstart --prompt="The function returns" --length=50 --seed=1
python -m trainers.generate --run_dir=runs/quickstart --input=prompts.txt --length=50   # JSON lines: prompt, text
"""

import itertools
import json
import sys

import numpy as np
from absl import flags

from keras_adaptive.data import EOS
from keras_adaptive.files import read_text_lines
from trainers import command_line
from trainers.run_folder import RunFolder

FLAGS = flags.FLAGS


def define_flags():
    flags.DEFINE_string("run_dir", None, "Folder of a trained run.", required=True)
    flags.DEFINE_string("prompt", "", "Text to continue; it is read as the start of a line.")
    flags.DEFINE_string("input", None, "UTF-8 file with one prompt per line, instead of --prompt.")
    flags.DEFINE_integer("batch_size", 16, "Prompts of --input at a time.", 1, 2**20)
    flags.DEFINE_integer("length", 50, "Words, or pieces of words, to generate.", 1, 10**6)
    temperature = "Below 1 sharpens the distribution, 0 takes the most probable word."
    command_line.define_float("temperature", 1.0, temperature, 0)
    flags.DEFINE_integer("top_k", None, "Draw among the k most probable words only.", lower_bound=1)
    top_p = "Draw among the fewest words whose probabilities add up to this (nucleus sampling)."
    command_line.define_float("top_p", None, top_p, 0, 1)
    flags.DEFINE_string("stop", None, "Word, or piece of a word, with which a text ends before --length.")
    flags.DEFINE_integer("seed", None, "Seed of the draws: the same seed gives the same text.", lower_bound=0)
    flags.DEFINE_bool("open_vocabulary", False, "Read unknown words of the prompt by their bytes (char_cnn models).")
    flags.DEFINE_enum("model", "best", ["best", "last"], "Which of the run's models.")


def main():
    run = RunFolder(FLAGS.run_dir)
    vocabulary, tokenize = run.vocabulary(), run.tokenize()
    prompts = [tokenize(text) for text in read_prompts(run.keeps_mark)]
    unknown = list(dict.fromkeys(word for tokens in prompts for word in vocabulary.unknown(tokens)))
    if unknown:
        way = "by their bytes" if FLAGS.open_vocabulary else "as <unk>"
        print(f"Not in the vocabulary, read {way}: {' '.join(map(run.shown, unknown))}", file=sys.stderr)
    extra = unknown if FLAGS.open_vocabulary else None
    model = run.model(FLAGS.model).for_inference(extra)
    how = (FLAGS.length, FLAGS.temperature, FLAGS.top_k)
    ends = {"top_p": FLAGS.top_p, "stop": stop_id(vocabulary)}
    ids = [np.concatenate([[EOS], vocabulary.encode(tokens, extra or ())]) for tokens in prompts]
    if not FLAGS.input:
        stream = (vocabulary.words[new[0]] for new in model.stream(ids, *how, FLAGS.seed, **ends))
        for text in itertools.chain(["".join(run.join(prompts[0])).removeprefix(" ")], run.join(stream)):
            print(text, end="", flush=True)
        print()
        return
    for start in range(0, len(ids), FLAGS.batch_size):
        seed = None if FLAGS.seed is None else [FLAGS.seed, start]
        some = slice(start, start + FLAGS.batch_size)
        for tokens, new in zip(prompts[some], model.generate(ids[some], *how, seed, **ends)):
            new = new[: np.append(np.flatnonzero(new == ends["stop"]) + 1, len(new))[0]]
            texts = ("".join(run.join(one)) for one in (tokens, [vocabulary.words[id] for id in new]))
            print(json.dumps(dict(zip(("prompt", "text"), texts)), ensure_ascii=False), flush=True)


def stop_id(vocabulary):
    """Returns the id of --stop, None without it."""
    if FLAGS.stop is None:
        return None
    if FLAGS.stop not in vocabulary:
        raise ValueError(
            f"--stop must be one word of the vocabulary, or one piece of a word. Received: --stop={FLAGS.stop}"
        )
    return int(vocabulary.encode([FLAGS.stop])[0])


def read_prompts(keeps_mark):
    """Returns the lines of --input, or --prompt."""
    if not FLAGS.input:
        return [FLAGS.prompt]
    with open(FLAGS.input, "rb") as source:
        return list(read_text_lines(source, FLAGS.input, keeps_mark=keeps_mark))


if __name__ == "__main__":
    command_line.run(main, define_flags)
