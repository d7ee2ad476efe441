"""Continues a prompt word by word (piece by piece in a run of sub-words), or a file of prompts in batches.

python -m trainers.generate --run_dir=runs/quickstart --prompt="The function returns" --length=50 --seed=1
python -m trainers.generate --run_dir=runs/quickstart --input=prompts.txt --length=50   # JSON lines: prompt, text
"""

import itertools
import json
import sys

from absl import flags

from keras_adaptive.files import read_text_lines
from keras_adaptive.text import TextModel
from trainers.experiments.memories import model_with_memory
from trainers.experiments.run_folder import RunFolder
from trainers.support import command_line

FLAGS = flags.FLAGS
LONGEST_WORD = 1000  # characters


def define_flags():
    command_line.define_path("run_dir", None, "Folder of a trained run.", required=True)
    flags.DEFINE_string("prompt", "", "Text to continue, which is read as the start of a line.")
    command_line.define_path("input", None, "UTF-8 file with one prompt per line, instead of --prompt.")
    flags.DEFINE_integer("batch_size", 16, "Number of prompts in --input at a time.", 1, 2**20)
    flags.DEFINE_integer("length", 50, "Number of words, or pieces of words, to generate.", 1, 10**6)
    temperature = "Temperature: values below 1 sharpen the distribution, 0 takes the most probable word."
    command_line.define_float("temperature", 1.0, temperature, 0)
    flags.DEFINE_integer("top_k", None, "Sample from the k most probable words only.", lower_bound=1)
    top_p = "Sample from the smallest set of words whose probabilities add up to this (nucleus sampling)."
    command_line.define_float("top_p", None, top_p, 0, 1)
    flags.DEFINE_multi_string("stop", None, "Word, or piece of a word, that ends a text before --length.")
    flags.DEFINE_multi_string("forbid", ["<unk>"], "Word, or piece of a word, that is never drawn; empty for none.")
    penalty = "Factor of the log-probabilities of words that the text already contains; 1 changes nothing."
    command_line.define_float("repetition_penalty", 1.0, penalty, 1)
    flags.DEFINE_integer("seed", None, "Random seed. The same seed gives the same text.", lower_bound=0)
    flags.DEFINE_bool("open_vocabulary", False, "Read unknown words of the prompt by their bytes (char_cnn models).")
    command_line.define_reading()
    command_line.define_memory()
    flags.DEFINE_enum("model", "best", ["best", "last"], "Model of the run to use.")


def main():
    run = RunFolder(FLAGS.run_dir)
    codec = run.codec
    prompts = read_prompts(codec.keeps_mark)
    if not codec.unit.is_character:
        check_words(prompts)
    unknown = dict.fromkeys(word for text in prompts for word in codec.vocabulary.unknown(codec.tokenize(text)))
    if unknown:
        way = "by their bytes" if FLAGS.open_vocabulary else "as <unk>"
        print(f"Not in the vocabulary, read {way}: {' '.join(map(codec.shown, unknown))}", file=sys.stderr)
    read = {name: FLAGS[name].value for name in ("open_vocabulary", "window", "context")}
    model = TextModel(model_with_memory(run, FLAGS.model, FLAGS.memory), codec, **read)
    model.read_unknown(unknown)
    for name in ("stop", "forbid"):
        if unknown := codec.vocabulary.unknown(filter(None, FLAGS[name].value or ())):
            raise ValueError(
                f"--{name} must be a word of the vocabulary, or a piece of a word. Received: --{name}={unknown[0]}."
            )
    how = {name: FLAGS[name].value for name in ("length", "temperature", "top_k", "top_p", "repetition_penalty")}
    how |= {"stop": FLAGS.stop or None, "forbid": [word for word in FLAGS.forbid if word]}
    if not FLAGS.input:
        stream = (text for _, text in model.stream(FLAGS.prompt, **how, seed=FLAGS.seed))
        for text in itertools.chain([FLAGS.prompt], stream):
            print(text, end="", flush=True)
        print()
        return
    for start in range(0, len(prompts), FLAGS.batch_size):
        seed = None if FLAGS.seed is None else [FLAGS.seed, start]
        batch = prompts[start : start + FLAGS.batch_size]
        for prompt, text in zip(batch, model.generate(batch, **how, seed=seed)):
            print(json.dumps({"prompt": prompt, "text": text}, ensure_ascii=False), flush=True)


def check_words(prompts):
    """Raises a ValueError if a prompt has a word that is too long to be one, whose pieces would take very long."""
    longest = max((len(word) for text in prompts for word in text.split()), default=0)
    if longest > LONGEST_WORD:
        raise ValueError(
            f"A word of a prompt must have at most {LONGEST_WORD:,} characters. Received: {longest:,}. Put spaces "
            "between the words."
        )


def read_prompts(keeps_mark):
    """Returns the list of the prompts: the lines of --input, or --prompt."""
    if not FLAGS.input:
        try:
            FLAGS.prompt.encode()
        except UnicodeEncodeError:  # Python reads other bytes of a command line as half a character
            raise ValueError("--prompt must be UTF-8: convert it, or pass a file by --input.") from None
        return [FLAGS.prompt]
    with open(FLAGS.input, "rb") as source:
        return list(read_text_lines(source, FLAGS.input, keeps_mark=keeps_mark))


if __name__ == "__main__":
    command_line.run(main, define_flags)
