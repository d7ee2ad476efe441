#!/usr/bin/env bash
# Measures on a GPU what docs/gpu.md lists, in at most nine minutes for a backend, torch or jax, without a network.
#
#   scripts/benchmarks/on_gpu.sh wheels                        # with a network: fetches what the machine lacks into .wheels/
#   scripts/benchmarks/on_gpu.sh [BACKEND [FOLDER [FLAG...]]]  # on the machine: writes FOLDER/DEVICE.json
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}

if [ "${1:-}" = wheels ]; then
  platforms=(manylinux_2_28_x86_64 manylinux_2_27_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64)
  exec "$python" -m pip download --no-deps --only-binary=:all: --python-version "${PYTHON_VERSION:-3.12}" \
    --implementation cp "${platforms[@]/#/--platform=}" --constraint constraints.txt --dest .wheels \
    keras optree namex cut-cross-entropy liger-kernel keras-hub kagglehub kagglesdk
fi

backend=${1:-torch} folder=${2:-scripts/results/gpu}
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
if compgen -G ".wheels/*.whl" > /dev/null; then
  site=$(mktemp -d)
  trap 'rm -rf "$site"' EXIT
  "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" .wheels/*.whl
  PYTHONPATH=$site:$PYTHONPATH
fi
export XLA_PYTHON_CLIENT_PREALLOCATE=false  # JAX leaves memory to the peers, and its statistics are those of the step
export NVIDIA_TF32_OVERRIDE=0               # float32 products are float32 products
export MPLBACKEND=Agg

"$python" -m scripts.benchmarks.on_gpu --backend="$backend" --folder="$folder" "${@:3}"
