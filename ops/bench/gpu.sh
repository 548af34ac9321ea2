#!/usr/bin/env bash
# Tests that need a GPU, a run of `azq up` with all its processes, then every figure of `azq bench all`, on a machine with Python, PyTorch
# and a C++ compiler and no network.
# Usage: ops/bench/gpu.sh WHEELS OUT [azq bench all's options]
# WHEELS is the folder that carry_wheels.py filled. OUT gets setup.txt, tests.txt, log.txt and, after each part that was measured, bench.json
# and bench.md; pictures at the end. A step that fails is named and the next one goes on, if it can.
# It all takes MINUTES (9), building azq included, of which tests take at most TESTS (0: none) and the run UP (1; 0: none). PYTHON names the interpreter that has
# PyTorch (python3), VENV where azq is put (/tmp/azq-bench-venv); it stays there, and is built again only when the sources changed.
set -uo pipefail
began=$(date +%s)
wheels=$(cd "$1" && pwd) && mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
shift 2
python=${PYTHON:-python3} venv=${VENV:-/tmp/azq-bench-venv} tests=${TESTS:-0}
repo=$(pwd) bin=$venv/bin failed=0
export PYTHONUNBUFFERED=1

say() { echo "== $(($(date +%s) - began)) s: $*" | tee -a "$out/log.txt"; }
sources() { find azq workers daemon pyproject.toml "$wheels" -type f ! -name '*.pyc' -exec sha256sum {} + | sort | sha256sum; }
minutes_left() { awk "BEGIN { left = ${MINUTES:-9} - ($(date +%s) - $began) / 60; print (left > 0.1 ? left : 0.1) }"; }

setup() {
  set -e
  # Without pip: where the system has no ensurepip, that of the machine is found like its other packages.
  [ -x "$bin/python" ] || "$python" -m venv --without-pip "$venv"
  # PyTorch, and JAX where there is one, are the machine's own: its packages come behind the carried ones.
  "$python" - "$venv" <<'PATHS'
import pathlib, sys, sysconfig, torch
site = next(pathlib.Path(sys.argv[1]).glob("lib/python3*/site-packages"))
own = {str(pathlib.Path(torch.__file__).parents[1]), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
(site / "machine.pth").write_text("\n".join(sorted(own)) + "\n")
PATHS
  "$bin/python" -m pip --version || "$bin/python" -m ensurepip
  "$bin/python" -m pip install -q --no-index --no-deps --disable-pip-version-check "$wheels"/*.whl
  PATH=$bin:$PATH "$bin/python" -m pip install -q --no-index --no-deps --no-build-isolation --disable-pip-version-check .
  (cd "$out" && "$bin/python" -P -c "import torch, azq, azq._core as core; print(azq.__file__, core.__file__, torch.__version__, torch.cuda.is_available())")
  sources >"$venv/sources.sha256"
}

if [ "$(cat "$venv/sources.sha256" 2>/dev/null)" = "$(sources)" ]; then
  say "azq is built"
else
  say "building azq"
  (setup) >"$out/setup.txt" 2>&1 # not as a condition, in which a shell goes on after errors
  if [ $? != 0 ]; then
    tail -n 40 "$out/setup.txt"
    say "azq could not be built"
    exit 1
  fi
fi

if [ "$tests" != 0 ]; then
  say "tests that need a GPU"
  # Neither the project's settings, which want plugins and take warnings of another PyTorch for errors, nor its tree, which hides the built package.
  timeout -k 10 "$(awk "BEGIN { print int(60 * $tests) }")" "$bin/python" -P -m pytest -c /dev/null --rootdir "$repo" -o pythonpath="$repo/tests" \
    --import-mode=importlib -p no:cacheprovider -m "${MARKS:-gpu and not slow}" -W ignore -ra --tb=short --durations=10 -v \
    tests/unit/inference/test_inference_gpu.py tests/unit/learner/test_learner_gpu.py 2>&1 | tee "$out/tests.txt"
  code=${PIPESTATUS[0]}
  [ "$code" = 0 ] || failed=1
  say "tests ended with code $code"
fi

cd "$out" || exit 2
say "$("$bin/azq" devices plan --preset gpu 2>&1)"
if [ "${UP:-1}" != 0 ]; then
  say "azq up: self-play, inference and a learner"
  # It ends by itself at that minute; what it takes to start and to drain comes on top.
  timeout -k 10 "$(awk "BEGIN { print int(60 * ${UP:-1} + 90) }")" "$bin/azq" up --game connect_four --preset "${PRESET:-sprint}" --run up \
    --until "minutes=${UP:-1}" --json --set daemon.port=0 --set home="$out/runs" >"$out/up.txt" 2>&1
  code=$?
  [ "$code" = 0 ] || failed=1
  say "azq up ended with code $code: $(tail -n 1 "$out/up.txt" | cut -c 1-400)"
fi
say "azq bench all, $(minutes_left) minutes"
AZQ_PEERS_SCRIPT=$repo/ops/bench/peers.py "$bin/azq" bench all --minutes "$(minutes_left)" --out "$out" "$@" 2>&1 | tee -a "$out/log.txt" || failed=1
say "done"
exit $failed
