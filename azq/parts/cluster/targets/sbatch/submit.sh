#!/bin/bash
# Submits every machine of the cluster that is neither queued nor at work. May be run again at any time.
set -euo pipefail
cd "$(dirname "$0")"
. ./cluster.sh

there() { squeue --noheader --array --user="$(id -un)" --name="azq-$name-$1" --format=%K; }

mkdir -p "$state"
chmod 700 "$state"
if [ -e "$state/stopping" ]; then
    for line in "${groups[@]}"; do
        if [ -n "$(there "${line%% *}")" ]; then
            echo "azq-$name-${line%% *} is ending; submit again when squeue shows it no more" >&2
            exit 1
        fi
    done
    rm -f "$state/stopping"
fi
for ((place = ${#groups[@]} - 1; place >= 0; place--)); do # whom the others wait for comes first
    read -r group count _ <<<"${groups[place]}"
    queued=$(there "$group")
    missing=$(seq 0 $((count - 1)) | grep -vxF "${queued:-none}" | paste -sd, || true)
    if [ -z "$missing" ]; then
        echo "azq-$name-$group: is there"
    else
        job=$(sbatch --parsable --export=NONE --array="$missing" --output="$state/$group-%a.log" "$group.sbatch")
        echo "azq-$name-$group: job $job, tasks $missing"
    fi
done
echo "logs and settings: $state"
