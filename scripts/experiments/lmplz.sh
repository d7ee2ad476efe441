#!/usr/bin/env bash
# Builds lmplz, KenLM's estimator of Kneser-Ney models, from the source package on PyPI, and prints its path.
#
#   scripts/experiments/lmplz.sh [FOLDER]    # runs/kenlm by default; keeps what it finds there
#
# It needs CMake, a C++ compiler and Boost. On Debian:
#   apt-get install cmake g++ libboost-{program-options,system,thread,test}-dev
# The Python module that reads the models needs no Boost: pip install kenlm
set -euo pipefail

version=0.3.0
mkdir -p "${1:-runs/kenlm}"
cd "${1:-runs/kenlm}"
if [[ ! -x build/bin/lmplz ]]; then
  {
    "${PYTHON:-python}" -m pip download --no-deps --no-binary kenlm --dest . "kenlm==$version"
    tar -xzf "kenlm-$version.tar.gz"
    cmake -S "kenlm-$version" -B build -DCMAKE_BUILD_TYPE=Release
    cmake --build build --target lmplz --parallel
  } >&2
fi
echo "$PWD/build/bin/lmplz"
