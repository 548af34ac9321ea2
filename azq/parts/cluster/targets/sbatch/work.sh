# shellcheck shell=bash
# How a job works: one command, until it ends or somebody wants it to end. Read by first.sh and member.sh.
ending=""
trap 'ending=yes' TERM # Slurm's, when the time is nearly up, and cancel.sh's

nap() { # a sleep that a signal ends
    sleep "$1" &
    wait $! || true
}

work() { # COMMAND...: drains it, once, as soon as `leaving` is true; its exit code
    local told="" pid
    "$@" &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        if [ -z "$told" ] && leaving; then
            kill -TERM "$pid" 2>/dev/null || true
            told=yes
        fi
        nap 1
    done
    wait "$pid"
}

again() { # into the queue once more, unless the cluster is to end
    [ -n "$requeue" ] && [ ! -e "$state/stopping" ] || exit 0
    echo "drained; queued again"
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
}
