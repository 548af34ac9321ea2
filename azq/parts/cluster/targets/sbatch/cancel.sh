#!/bin/bash
# Drains the cluster and ends its jobs: runs pause, then ends who plays, who learns, who evaluates leaves, and last brokers and daemon.
# May be run again at any time; submit.sh goes on from there.
set -euo pipefail
cd "$(dirname "$0")"
. ./cluster.sh

jobs_of() { squeue --noheader --user="$(id -un)" --name="$1" --format=%i "${@:2}"; }

[ -d "$state" ] || { echo "there is no $state: nothing was submitted" >&2 && exit 1; }
touch "$state/stopping"
if [ -n "$(jobs_of "azq-$name-$first" --states=RUNNING)" ]; then
    for _ in $(seq 60); do
        [ ! -e "$state/paused" ] || break
        sleep 1
    done
    [ -e "$state/paused" ] || echo "the runs were not paused; their games go back all the same" >&2
fi
for wave in $(printf '%s\n' "${groups[@]}" | awk '{ print $3 }' | sort -nu); do
    names="" patience=0
    for line in "${groups[@]}"; do
        read -r group _ of drain_s _ <<<"$line"
        [ "$of" = "$wave" ] || continue
        names=$names${names:+,}azq-$name-$group
        patience=$((drain_s > patience ? drain_s : patience))
    done
    IFS=, read -ra each <<<"$names"
    for job in "${each[@]}"; do
        scancel --quiet --user="$(id -un)" --state=PENDING --name="$job"
        scancel --quiet --user="$(id -un)" --state=RUNNING --signal=TERM --batch --name="$job"
    done
    for _ in $(seq "$patience"); do
        [ -n "$(jobs_of "$names")" ] || break
        sleep 1
    done
    left=$(jobs_of "$names")
    if [ -n "$left" ]; then
        echo "not drained within $patience s, and ended: $names" >&2
        # shellcheck disable=SC2086 # a list of jobs
        scancel $left
    else
        echo "ended: ${names//,/, }"
    fi
done
