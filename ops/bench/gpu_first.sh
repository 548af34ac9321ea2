#!/usr/bin/env bash
# The first ten minutes on a GPU: ten steps, each with a time of its own, that find what is broken and what is slow. What a step says goes to
# OUT/N-name.txt as it is said, so that what was measured stays whatever comes after; OUT/summary.txt has a line for each step.
# Usage: ops/bench/gpu_first.sh WHEELS OUT [STEP ...]    (all steps, or these numbers)
# WHEELS is the folder that carry_wheels.py filled; PYTHON and VENV as in gpu.sh, which builds azq in step 2. DEVICE (cuda:0) may be cpu, to try the steps.
set -uo pipefail
wheels=$(cd "$1" && pwd) && mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
shift 2
repo=$(pwd) device=${DEVICE:-cuda:0} venv=${VENV:-/tmp/azq-bench-venv} bin=${VENV:-/tmp/azq-bench-venv}/bin python=${PYTHON:-python3} failed=0
only=" $* "
export PYTHONUNBUFFERED=1 repo device venv bin python wheels out

# step NUMBER NAME SECONDS SCRIPT: in a shell of its own, in OUT, because in the tree the sources without the core hide the built package.
step() {
  [ "$only" = "  " ] || [[ $only == *" $1 "* ]] || return 0
  local began=$SECONDS code
  (cd "$out" && timeout -k 10 "$3" bash -o pipefail -c "$4") >"$out/$1-$2.txt" 2>&1
  code=$?
  [ "$code" = 0 ] || failed=1
  echo "$1 $2: $([ "$code" = 0 ] && echo done || echo "FAILED with code $code") after $((SECONDS - began)) s: $(tail -n 1 "$out/$1-$2.txt" | cut -c 1-160)" | tee -a "$out/summary.txt"
}

# A part of azq bench all: KIND SIMULATIONS [PROCESSES THREADS].
part() {
  "$bin/python" -m azq.bench.rig azq.bench.suite measure_part "{\"kind\":\"$1\",\"num_simulations\":$2,\"overrides\":[\"worker.concurrency=${3:-1}\"],\"seconds\":15,\"device\":\"$device\",
    \"case\":{\"name\":\"c4\",\"game\":\"connect_four\",\"network\":{\"kind\":\"resnet\",\"blocks\":${BLOCKS:-5},\"channels\":${CHANNELS:-128}},
    \"batch\":${BATCH:-8192},\"learner_batch\":${LEARNER_BATCH:-16384},\"threads\":${4:-3},\"params\":{},\"groups\":3}}"
}
export -f part

step 1 machine 60 'nvidia-smi; lscpu | grep -i model; nproc; "$python" -c "import torch as t; print(t.__version__, t.backends.cudnn.version(), t.cuda.is_available())"'
step 2 build 300 'cd "$repo" && MINUTES=4 TESTS=0 UP=0 PYTHON="$python" VENV="$venv" ops/bench/gpu.sh "$wheels" "$out/tiny" --size tiny'
step 3 device 60 '"$bin/python" -c "from azq.nets.device import pick_device as pick; print(pick(\"auto\", \"learner.device\"), pick(\"$device\", \"learner.device\"))" && "$bin/azq" devices plan --preset gpu'
step 4 tests 180 '"$bin/python" -P -m pytest -x -q -c /dev/null --rootdir "$repo" -o pythonpath="$repo/tests $repo/tests/support" --import-mode=importlib \
  -p no:cacheprovider -W ignore -m "gpu and not slow" "$repo/tests/unit/inference/test_inference_gpu.py" "$repo/tests/unit/learner/test_learner_gpu.py"'
step 5 stream 150 'part network 0'
step 6 network 150 '"$bin/python" "$repo/ops/bench/gpu_network.py" --device "$device" --blocks "${BLOCKS:-5}" --channels "${CHANNELS:-128}" --batch "${BATCH:-8192}"'
step 7 selfplay 200 'part selfplay 200 "${PROCESSES:-4}" & sleep 45; nvidia-smi dmon -s u -c 15; top -b -H -n 1 | head -n 30; wait $!'
step 8 cpu 120 '"$bin/azq" bench search --seconds 5 --json; "$bin/azq" bench bus --seconds 4 --clients 3 --bytes 90112 --json
  "$bin/azq" bench selfplay --network-clock 2.2ms --seconds 20 --json'
step 9 learner 150 'part learner 0'
step 10 loop 220 '"$bin/azq" up --game connect_four --preset "${PRESET:-sprint}" --run first --until minutes=2 --json --set daemon.port=0 --set home="$out/runs" \
  --set inference.device="$device" --set learner.device="$device" | tail -n 3
  grep -hE "forward_pass_failed|child_died|tuned|weights_switched|Error" "$out"/runs/first/logs/*.log | head -n 40'
exit $failed
