#!/bin/bash
# Makes every host a machine of the cluster, by ssh, under systemd; one that is as it should be is left alone. May be run again at any time.
# --force takes hosts that have settings of another fleet.
set -euo pipefail
cd "$(dirname "$0")"
. ./cluster.sh
force=${1:-}
failed=""

on() { # MACHINE WORD...: root's part there; a secret travels on its standard input alone
    { printf 'force=%q token=%q\n' "$force" "${token:-}" && cat "hosts/$1.sh" machine.sh; } | reach "$1" "$as_root ${*:2}"
}

began=$(on "$first" state) # one that keeps new brokers knows nobody
if [ "$began" = there ]; then
    echo "$first: is there"
else
    on "$first" take >&2
    echo "$first: keeps brokers and daemon"
fi
on "$first" runs >&2
for machine in "${machines[@]}"; do
    [ "$machine" != "$first" ] || continue
    if [ "$began" != new ] && [ "$(on "$machine" state || true)" = there ]; then
        echo "$machine: is there"
        continue
    fi
    if token=$(on "$first" admit "$machine") && [ -n "$token" ] && on "$machine" take >&2; then
        echo "$machine: has joined"
    else
        echo "$machine: has not joined; run this again" >&2
        failed=yes
    fi
    token=""
done
[ -z "$failed" ]
