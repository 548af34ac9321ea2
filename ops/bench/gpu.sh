#!/bin/sh
# Every figure of `azq bench all` on a machine with Python, PyTorch and a C++ compiler and no network.
# Usage: ops/bench/gpu.sh WHEELS OUT [azq bench all's options]
# WHEELS is the folder that carry_wheels.py filled; OUT gets bench.json, bench.md, pictures and log.txt.
# It all takes MINUTES (9), building azq included. PYTHON names the interpreter that has PyTorch (python3), VENV where azq is put (/tmp/azq-bench-venv).
set -eu
began=$(date +%s)
wheels=$1 out=$2
shift 2
python=${PYTHON:-python3} venv=${VENV:-/tmp/azq-bench-venv}
mkdir -p "$out"
"$python" -m venv "$venv"
# PyTorch, and JAX where there is one, are the machine's own: its packages come behind the carried ones.
"$python" - "$venv" <<'PATHS'
import pathlib, sys, sysconfig, torch
site = next(pathlib.Path(sys.argv[1]).glob("lib/python3*/site-packages"))
own = {str(pathlib.Path(torch.__file__).parents[1]), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
(site / "machine.pth").write_text("\n".join(sorted(own)) + "\n")
PATHS
bin=$venv/bin
"$bin/python" -m pip install -q --no-index --no-deps --disable-pip-version-check "$wheels"/*.whl
PATH=$bin:$PATH "$bin/python" -m pip install -q --no-index --no-deps --no-build-isolation --disable-pip-version-check .
# Not from the tree, whose sources would hide the built package; it finds the peers' script by the variable.
peers=$(pwd)/ops/bench/peers.py out=$(cd "$out" && pwd)
cd "$out"
left=$(awk "BEGIN { left = ${MINUTES:-9} - ($(date +%s) - $began) / 60; print left > 0.1 ? left : 0.1 }")
AZQ_PEERS_SCRIPT=$peers "$bin/azq" bench all --minutes "$left" --out "$out" "$@" 2>"$out/log.txt"
