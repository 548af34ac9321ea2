#!/bin/sh
# Resolves pyproject.toml anew for Python 3.11 to 3.13 on x86_64 and aarch64: every version pinned, every file hashed. Run by `make lock`.
# PyTorch's CPU builds do not lie in the package index: their hashes are kept from the lock before, and those of wheels that are named
# behind the interpreter are added.
set -eu
python=${1:?usage: lock.sh PYTHON [torch wheel ...]}
shift
locks=ops/locks
"$python" -m pip install -q --require-hashes -r $locks/uv.txt
compile() { "$python" -m uv pip compile - --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-annotate --no-header -q "$@"; }

echo "pip==26.3" | compile -o $locks/pip.txt
echo "uv" | compile -o $locks/uv.txt
"$python" ops/requirements.py group wasm | compile -o $locks/wasm.txt
"$python" ops/requirements.py group wheels | compile -o $locks/wheels.txt
"$python" ops/requirements.py direct embedded eval nvml s3 sim | compile -o constraints.txt
sed -i '1{/^#/!i # Every dependency of azq, pinned and hashed, for each Python and machine. Made by `make lock`, not by hand.
}' constraints.txt
"$python" ops/requirements.py group extras | compile -c constraints.txt -o $locks/extras.txt
"$python" ops/requirements.py group docs | compile -c constraints.txt -o $locks/docs.txt
"$python" ops/requirements.py torch >$locks/torch.txt
"$python" ops/requirements.py torch-cpu "$@" >$locks/torch-cpu.new
mv $locks/torch-cpu.new $locks/torch-cpu.txt
