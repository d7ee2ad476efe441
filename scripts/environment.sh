# Sourced by scripts/quickstart.sh and scripts/test.sh, in the root of the project.

export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH PYTHONDONTWRITEBYTECODE

find_python() {
  local name
  for name in python3 python3.11 python3.12 python3.13 python; do
    if "$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  echo "No Python 3.11 or newer with venv was found. Install one and put it on PATH." >&2
  return 1
}

# make_environment FOLDER EXTRAS [PACKAGE...]: a virtual environment with the project in it, editable, and the
# versions of constraints.txt; the packages come without what they depend on. All is compiled in the end, since pip does it
# on one core. One made before is kept until those, the packaging or the Python change.
make_environment() {
  local venv=$1 extras=$2 alone=("${@:3}") python stamp
  python=$(find_python)
  stamp=$({ "$python" -VV; echo "$PWD $extras ${alone[*]}"; cat constraints.txt setup.cfg setup.py pyproject.toml; } | cksum)
  if [[ -f $venv/stamp && $(cat "$venv/stamp") == "$stamp" ]]; then
    echo "Using $venv."
    return
  fi
  if [[ -e $venv && ! -f $venv/pyvenv.cfg ]]; then
    echo "$venv is there and is no virtual environment. Remove it, or name another folder with VENV=FOLDER." >&2
    return 1
  fi
  echo "Making $venv: $("$python" -V) and keras_adaptive$extras. This takes a few minutes."
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install -qq --no-compile --constraint constraints.txt setuptools
  "$venv/bin/pip" install -qq --no-compile --constraint constraints.txt --no-build-isolation --editable ".$extras"
  "$venv/bin/pip" check
  if ((${#alone[@]})); then
    "$venv/bin/pip" install -qq --no-compile --constraint constraints.txt --no-deps "${alone[@]}"
  fi
  "$venv/bin/python" -m compileall -q -j 0 "$venv/lib" >/dev/null 2>&1 || true # some files are of an old Python
  echo "$stamp" >"$venv/stamp"
}
