#!/bin/sh
# Resolves pyproject.toml anew into constraints.txt: every version pinned, every file hashed. Run by `make lock`.
set -eu
python=${1:?usage: lock.sh PYTHON}
"$python" -m pip install -q "uv>=0.13"
"$python" ops/requirements.py embedded eval plot s3 |
    "$python" -m uv pip compile - --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
        --generate-hashes --no-emit-index-url --no-annotate --no-header -q -o constraints.new
{
    echo "# Every dependency of azq, pinned and hashed; plain pip checks the hashes. Made by 'make lock', not by hand."
    cat constraints.new
} >constraints.txt
rm constraints.new
