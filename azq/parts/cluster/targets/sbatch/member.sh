# shellcheck shell=bash
# A machine that joins the first one, wherever that is; when that one is somewhere else, or there anew, it joins again.
. ./work.sh
address() { cat "$state/address" 2>/dev/null || true; }
leaving() { [ -n "$ending" ] || [ "$(address)" != "$here" ]; }

failed=0
while [ -z "$ending" ] && [ ! -e "$state/stopping" ]; do
    here=$(address)
    if [ -z "$here" ]; then
        nap 2
    elif work azq join "${here%% *}" --token-file "$state/$group.token" --foreground --force \
        --folder "$state/$group-$SLURM_ARRAY_TASK_ID" "$@"; then
        leaving || exit 0 # by itself: the fleet is over
    else
        failed=$((failed + 1))
        [ "$failed" -lt 20 ] || exit 1
        nap 15
    fi
done
again
