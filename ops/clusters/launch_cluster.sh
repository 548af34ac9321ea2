#!/usr/bin/env bash
# A cluster in AWS from one file: launch_cluster.sh --config FILE.yaml|FILE.toml [--out FOLDER]. May be run again at any time.
# YAML is another system's and is translated first. Account, region and machine images: FOLDER/terraform.tfvars (docs/cluster.md).
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
config="" out=cluster-aws
while [ $# -gt 0 ]; do
    case $1 in
        --config) config=${2:?--config names a file} && shift 2 ;;
        --out) out=${2:?--out names a folder} && shift 2 ;;
        *) config="" && break ;;
    esac
done
[ -n "$config" ] || { echo "usage: $0 --config FILE.yaml|FILE.toml [--out FOLDER]" >&2 && exit 2; }

case $config in
    *.yaml | *.yml)
        cluster=$out.toml
        azq cluster translate "$config" --out "$cluster"
        ;;
    *) cluster=$config ;;
esac
azq cluster check "$cluster"
azq cost "$cluster"
azq cluster render "$cluster" --target terraform-aws --out "$out"
git -C "$root" archive --format=tar.gz -o "$(realpath "$out")/azq.tar.gz" HEAD # for hosts whose image has no azq
exec "$out/launch_cluster.sh" --source "$out/azq.tar.gz"
