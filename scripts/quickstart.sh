#!/usr/bin/env bash
# From nothing to a trained, evaluated and talking language model, with pictures.
#
#   scripts/quickstart.sh
#
# Makes .venv, a corpus from the documentation of the Python standard library, and runs/quickstart. Each is reused when
# it is there already. BACKEND=torch or BACKEND=tensorflow trains on another backend (each has its own run folder).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
backend=${BACKEND:-jax}
venv=${VENV:-$PWD/.venv}
data=data/docstrings
run=runs/quickstart_$backend
passage="The function returns a list of all the names in the current namespace , and raises an exception if the file does not exist ."

source scripts/environment.sh
say() { printf '\n== %s\n' "$*"; }

make_environment "$venv" "[$( [[ $backend == tensorflow ]] && echo tensorflow-cpu || echo "$backend"),plots,tensorboard]"
export KERAS_BACKEND=$backend TF_CPP_MIN_LOG_LEVEL=3 MPLBACKEND=Agg
python=$venv/bin/python

say "corpus: the documentation of the Python standard library"
"$python" -m trainers.prepare --source=docstrings --data_dir="$data"

say "train: an adaptive-input, adaptive-softmax Transformer on $backend"
"$python" -m trainers.train --flagfile=configs/quickstart.flags --data_dir="$data" --run_dir="$run"

say "evaluate"
"$python" -m trainers.evaluate --run_dir="$run" --split=valid
"$python" -m trainers.evaluate --run_dir="$run" --split=test --blocks_of=lines --block=32 --context=32

say "score"
"$python" -m trainers.score --run_dir="$run" <<<"$passage"
"$python" -m trainers.score --run_dir="$run" --format=json <<<"$passage" >"$run/score.jsonl"

say "generate"
"$python" -m trainers.generate --run_dir="$run" --prompt="Return a" --length=60 --temperature=0.8 --seed=1

say "pictures"
"$python" -m trainers.plot "$run"
