#!/usr/bin/env bash
# Ends what launch_cluster.sh started: shutdown_cluster.sh [FOLDER] [--now], FOLDER being its --out. May be run again at any time.
set -euo pipefail
out=cluster-aws
if [ $# -gt 0 ] && [ "$1" != --now ]; then out=$1 && shift; fi
exec "$out/shutdown_cluster.sh" "$@"
