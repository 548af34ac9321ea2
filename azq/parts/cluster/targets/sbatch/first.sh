# shellcheck shell=bash
# The machine that keeps brokers and daemon: it lets the others in, by files that their owner alone reads, and says where it is.
. ./work.sh
umask 077
url=rediss://${AZQ_ADDRESS:-$(hostname -f)}:$port/0
open=""
rm -f "$state/address"
trap 'rm -f "$state/address"' EXIT

let_in() {
    azq runs list >/dev/null 2>&1 || return 1
    local run group roles
    for run in "${runs[@]}"; do
        azq runs show "$run" >/dev/null 2>&1 || create "$run" || return 1
    done
    if [ -e "$state/paused" ]; then
        while read -r run; do azq runs resume "$run" || return 1; done <"$state/paused"
        rm -f "$state/paused"
    fi
    for line in "${groups[@]}"; do
        read -r group _ _ _ roles <<<"$line"
        [ "$group" != "$first" ] || continue
        azq fleet revoke "$group" >/dev/null 2>&1 || true
        AZQ_BROKER__PUBLIC_CONTROL_URL=$url azq join-token --name "$group" --roles "$roles" --json |
            sed -n 's/.*"token": *"\([^"]*\)".*/\1/p' >"$state/$group.token"
        [ -s "$state/$group.token" ] || return 1
    done
    echo "$url $SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" >"$state/address.new"
    mv "$state/address.new" "$state/address"
}

pause() { # what cancel.sh waits for
    local run
    : >"$state/paused.new"
    for run in "${runs[@]}"; do
        if azq runs pause "$run" --reason cancel.sh; then echo "$run" >>"$state/paused.new"; fi
    done
    mv "$state/paused.new" "$state/paused"
}

leaving() {
    [ -z "$ending" ] || return 0
    if [ -e "$state/stopping" ]; then
        [ -e "$state/paused" ] || pause
    elif [ -z "$open" ] && let_in; then
        open=yes
    fi
    return 1
}

if work azq join "$url" --foreground --force --folder "$state/$group-0" "$@"; then
    [ -n "$ending" ] || touch "$state/stopping" # by itself: the fleet is over
    again
else
    exit 1
fi
