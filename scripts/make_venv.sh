#!/usr/bin/env bash
# Makes a virtual environment: make_venv.sh PYTHON DIR. On Debian and Ubuntu the venv module is a
# package of its own; as root it is installed, else the message says which one is missing.
set -euo pipefail
python=$1
venv=$2

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "slotune needs Python 3.11 or newer; '$python' is $("$python" --version 2>&1 || true)." \
    "Name another with: make PYTHON=python3.12" >&2
  exit 2
fi
[[ -x $venv/bin/python ]] && "$venv/bin/python" -m pip --version >/dev/null 2>&1 && exit 0
echo "-- making $venv with $("$python" --version)"
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "-- installing python3-venv with apt-get"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
  else
    echo "Python's venv module is missing: install it with 'apt-get install python3-venv'." >&2
    exit 2
  fi
fi
"$python" -m venv "$venv"
