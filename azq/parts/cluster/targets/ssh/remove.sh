#!/bin/bash
# Drains the cluster and takes azq's units from its hosts: who plays first, then who learns, leaves' evaluation, last brokers and daemon.
# Settings, passwords and runs stay on the hosts; install.sh goes on with them.
set -euo pipefail
cd "$(dirname "$0")"
. ./cluster.sh
failed=""

on() { cat "hosts/$1.sh" machine.sh | reach "$1" "$as_root ${*:2}"; }

on "$first" pause >&2 || echo "the runs were not paused; their games go back all the same" >&2
for machine in "${stopped[@]}"; do
    if on "$machine" leave >&2; then
        echo "$machine: has left"
    else
        echo "$machine: was not reached; run this again" >&2
        failed=yes
    fi
done
[ -z "$failed" ]
