#!/usr/bin/env bash
# Everything that a change must pass: style and types, the site of the documentation, the whole test suite on each
# backend, the wheel, and the page in a browser.
#
#   scripts/test.sh                                  all of it
#   BACKENDS="jax torch" scripts/test.sh             the suite on these backends only
#   scripts/test.sh tests/data -k vocabulary         arguments go to pytest, and the browser stays closed
#   scripts/test.sh -m "not processes"               without the tests that start processes
#
# All stages but the environment run side by side, so that no core is idle while a test waits; their outputs are
# shown one after the other. Tests marked by `once` run on the first backend only. The environment .venv-test is
# made on the first call and kept until constraints.txt, setup.cfg, setup.py, pyproject.toml or the Python changes; so are the
# programs that JAX compiles. VENV=FOLDER puts it elsewhere. The browser is Debian's chromium, which root gets by itself;
# CHROMIUM=PATH names another one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
backends=${BACKENDS:-torch tensorflow jax}
venv=${VENV:-$root/.venv-test}

# One thread a process, since pytest runs one process a core; readable output; no window for plots.
export OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1
export TF_CPP_MIN_LOG_LEVEL=3 MPLBACKEND=Agg

# Under JAX compiling takes most of the time. Compiled programs are kept in the environment, for all processes and for the
# next run. XLA leaves out the passes that only pay in programs that run for long, generates code in the older of its
# two ways, which takes half the time, and does not divide small programs among threads.
export JAX_COMPILATION_CACHE_DIR=$venv/compiled JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
XLA_FLAGS="--xla_llvm_disable_expensive_passes=true --xla_backend_optimization_level=0 ${XLA_FLAGS:-}"
export XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 $XLA_FLAGS"

source scripts/environment.sh

# keras-nlp, whose samplers and tokenizer are compared with, comes without its dependencies: they would bring the full
# tensorflow, gigabytes in the very folder of tensorflow-cpu, which is all that they need. scikit-learn is moved out of
# the way: Keras imports it where it finds it, a second in every process. tests/scripts/experiments/test_search.py
# knows where it is.
environment() {
  local folder packages
  make_environment "$venv" "[tensorflow-cpu,jax,torch,subwords,plots,search,serve,faiss,tables,remote,grain,onnx,tensorboard,docs,test]" \
    keras-nlp keras-hub keras-rs regex tensorflow-text
  packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  mkdir -p "$venv/apart"
  for folder in "$packages"/{sklearn,scikit_learn.libs}; do
    if [[ -d $folder ]]; then mv "$folder" "$venv/apart"; fi
  done
}

style() {
  "$venv/bin/ruff" check && "$venv/bin/ruff" format --check && "$venv/bin/python" -m mypy --cache-dir="$venv/mypy"
}

# Pages, links and docstrings are read in four seconds, and nothing of the package is imported. The first time, the
# runtime of the front page is downloaded and its model exported. With --quiet, --strict would count no warnings.
site() {
  folder=$(mktemp -d) # not local, since the trap runs when the function is over
  trap 'rm -rf "$folder"' EXIT
  NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --site-dir "$folder"
}

# So that the kept programs do not grow without bound.
clear_large_cache() {
  local megabytes
  megabytes=$(du -sm "$JAX_COMPILATION_CACHE_DIR" 2>/dev/null | cut -f1) || true
  if ((${megabytes:-0} > 1024)); then rm -rf "$JAX_COMPILATION_CACHE_DIR"; fi
}

suite() { # suite BACKEND [pytest arguments]
  # A process keeps to its part of the files until it is done, so that most of what a file shares is made once.
  local status=0
  KERAS_BACKEND=$1 "$venv/bin/python" -m pytest --numprocesses=auto --maxprocesses=4 --dist=worksteal -q "${@:2}" ||
    status=$?
  # Where all of the chosen tests run once, none is left for the other backends: pytest's status 5.
  if ((status == 5)) && [[ ${2:-} == --without-once ]]; then return 0; fi
  return "$status"
}

# The source distribution of a copy of the tree, and the wheel that is built from it, must have metadata that a package index
# accepts. The wheel, on its own in a folder and with a Python that does not see the working tree (-S
# leaves the editable install out), must hold every module and the files beside them, such as the page's. Then its
# programs are run where nothing else is installed.
wheel() {
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  mkdir "$folder/source"
  cp -r keras_adaptive trainers configs setup.cfg setup.py pyproject.toml README.md LICENSE "$folder/source"
  "$venv/bin/python" -m build --no-isolation --outdir "$folder" "$folder/source" >"$folder/log" 2>&1 ||
    { cat "$folder/log"; return 1; }
  "$venv/bin/twine" check --strict "$folder"/*.whl "$folder"/*.tar.gz
  "$venv/bin/pip" install --quiet --no-deps --target "$folder/site" "$folder"/*.whl
  packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  cd "$folder"
  KERAS_BACKEND=${backends%% *} PYTHONPATH=$folder/site:$packages "$venv/bin/python" -S - "$root" <<'PY'
import importlib.metadata
import pathlib
import pkgutil
import sys

import keras_adaptive

root = pathlib.Path(sys.argv[1])
for package in ("keras_adaptive", "trainers"):
    if not (root / package).is_dir():
        continue
    path = importlib.import_module(package).__path__
    assert not path[0].startswith(str(root)), path
    names = [module.name for module in pkgutil.walk_packages(path, package + ".")]
    files = [file for file in (root / package).rglob("*.py") if file.name != "__init__.py"]
    missing = {".".join(file.relative_to(root).with_suffix("").parts) for file in files} - set(names)
    assert not missing, f"not in the wheel: {sorted(missing)}"
    names = [name for name in names if ".pure_torch." not in name]  # which transformers imports, from a folder of its own
    for name in names:
        importlib.import_module(name)
    print(f"{package}: {len(names)} modules import from the wheel")
for folder, place in (("keras_adaptive", "keras_adaptive"), ("trainers", "trainers"), ("configs", "trainers/configs")):
    files = {file.relative_to(root / folder) for file in (root / folder).rglob("*") if file.is_file()}
    missing = {str(file) for file in files if file.suffix != ".pyc" and not pathlib.Path("site", place, file).exists()}
    assert not missing, f"not in the wheel: {sorted(missing)}"
print("version", importlib.metadata.version("keras_adaptive"))
PY
  cd "$root"
  "$venv/bin/python" -m scripts.try_wheel "$folder"/*.whl $backends
}

# The page of trainers.serve and the front page of the site in a real browser, which Playwright drives.
browser() {
  if ! find_chromium >/dev/null && ((EUID == 0)) && command -v apt-get >/dev/null; then
    echo "Installing chromium."
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-liberation >/dev/null
  fi
  if ! find_chromium >/dev/null; then
    echo "The tests of the page need Chromium. Run \`sudo apt-get install chromium\`, or pass CHROMIUM=PATH." >&2
    return 1
  fi
  CHROMIUM=$(find_chromium) KERAS_BACKEND=${backends%% *} "$venv/bin/python" -m pytest -q tests/browser
}

find_chromium() {
  command -v "${CHROMIUM:-chromium}" || command -v chromium-browser || command -v google-chrome
}

logs=$(mktemp -d) begun=() jobs=()
set -m # every job in a process group of its own, which ends with the script
trap 'for job in "${jobs[@]}"; do kill -- "-$job" 2>/dev/null || true; done; rm -rf "$logs"' EXIT

stage() { # stage NAME COMMAND...
  local name=$1 start=$SECONDS result=passed status=0
  shift
  printf '\n== %s\n' "$name"
  set +e # a command before || or after if would not stop at its first error
  (set -e; "$@")
  status=$?
  set -e
  if ((status)); then result="FAILED ($status)"; fi
  printf '%-18s %6d s  %s\n' "$name" $((SECONDS - start)) "$result" >>"$logs/summary"
}

beside() { # beside NAME COMMAND...: a stage that runs beside the others
  { set +m; stage "$@"; } >"$logs/$1" 2>&1 &
  begun+=("$1")
  jobs+=($!)
}

finish() {
  local number
  for number in "${!begun[@]}"; do
    tail --pid="${jobs[number]}" -n +1 -f "$logs/${begun[number]}" &
    wait $! "${jobs[number]}" || true # a signal ends `wait`, but would wait for a tail in the foreground
  done
  printf '\n== summary\n'
  cat "$logs/summary"
  printf '%-18s %6d s\n' total "$SECONDS"
  if grep -q FAILED "$logs/summary"; then exit 1; fi
  exit 0
}

stage environment environment
if grep -q FAILED "$logs/summary"; then finish; fi
clear_large_cache
beside style style
beside site site
beside wheel wheel
if (($# == 0)); then beside browser browser; fi
once=
for backend in $backends; do
  beside "tests, $backend" suite "$backend" $once "$@"
  once=--without-once
done
finish
