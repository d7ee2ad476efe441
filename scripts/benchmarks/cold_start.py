"""Times `trainers.score` of one line from a cold start against the import of Keras and its backend.

    python -m scripts.benchmarks.cold_start --backend=torch \
        --results=scripts/results/benchmarks/cold_start_torch.json

The run has the model of the README with random weights: tied words, 49,456 words, 4 blocks of 256/1,024 with 8 heads.
Processes are timed in turns, from their start to their end: `python -c "import keras"`, and `python -m trainers.score`
of a line of six words. JAX keeps no compiled programs for later processes.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from absl import flags

from scripts.benchmarks import common

FLAGS = flags.FLAGS
LINE = "word9 word99 word999 word9999 word40000 unknown\n"


def define_flags():
    body = {"num_blocks": 4, "dim": 256, "ffn_dim": 1024, "num_heads": 8}
    common.define_flags(5, vocabulary_size=49_456, cutoffs=["4000", "16000"], **body)


def write_run(folder):
    """Writes the folder of a run that contains a model with random weights, and a text of one line."""
    from keras_adaptive.data import Vocabulary
    from trainers.experiments.run_folder import RunFolder

    vocabulary = Vocabulary.from_counts({f"word{i}": 1 for i in range(FLAGS.vocabulary_size - 4)}, multiple_of=1)
    facts = {"size": len(vocabulary), "sha256": vocabulary.sha256}
    metadata = {"source": "random", "tokenizer": "whitespace", "unit": "word", "vocabulary": facts}
    RunFolder(folder).write("--length=512\n", vocabulary, metadata)
    common.build().save(Path(folder, "best.keras"))
    Path(folder, "line.txt").write_text(LINE)


def python(*arguments):
    """Runs Python with arguments in a new process, which must succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    subprocess.run([sys.executable, *arguments], check=True, env=environment, cwd=common.ROOT, capture_output=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        write_run(folder)
        score = "-m", "trainers.score", f"--run_dir={folder}", f"--input={folder}/line.txt"
        turns = {"import keras": lambda: python("-c", "import keras"), "score": lambda: python(*score)}
        times = common.time_interleaved(turns, FLAGS.repeats, warmup=1)
    candidates = {name: common.spread(seconds) for name, seconds in times.items()}
    reference = candidates["import keras"]["median"]
    rows = [
        [name, f"{time['median']:.1f}", f"{time['low']:.1f}–{time['high']:.1f}", f"{time['median'] / reference:.2f}"]
        for name, time in candidates.items()
    ]
    common.print_table([FLAGS.backend, "s", "span", "time / the import's"], rows)
    common.save(("backend", *common.MODEL_FLAGS), candidates=candidates)


if __name__ == "__main__":
    common.run(main, define_flags)
