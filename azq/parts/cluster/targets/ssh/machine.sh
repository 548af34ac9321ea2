# shellcheck shell=bash disable=SC2154
# What root does on one host, behind the machine's own values: a word of install.sh or remove.sh.
set -euo pipefail
folder=/etc/azq note=/etc/azq/cluster paused=/var/lib/azq/paused
export CREDENTIALS_DIRECTORY=$folder AZQ_HOME=/var/lib/azq/runs

state() { # new: nothing of this cluster is here
    if ! [ -e "$note" ]; then
        echo new
    elif [ "$(cat "$note")" = "$wanted" ] && systemctl is-active --quiet azq.target; then
        echo there
    else
        echo changed
    fi
}

take() { # becomes the machine; a token comes on standard input
    if [ -e "$folder/azq.toml" ] && ! [ -e "$note" ] && [ -z "$force" ]; then
        echo "$machine: $folder/azq.toml is of another fleet; move it away, or install.sh --force" >&2
        return 1
    fi
    if [ -n "$settings" ]; then
        mkdir -p "$folder"
        printf '%s' "$settings" >"$folder/azq.toml.new"
        mv "$folder/azq.toml.new" "$folder/azq.toml"
        "${azq[@]}" join "${words[@]}"
        # What ran before reads its settings only at a start.
        [ ! -e "$note" ] || systemctl restart azq.target
    else
        "${azq[@]}" join "${words[@]}" --force --token-file - <<<"$token"
    fi
    echo "$wanted" >"$note"
}

at_daemon() { "${azq[@]}" runs "$@" --config "$folder/azq.toml"; }

runs() { # creates what is not there, and goes on with what remove.sh paused
    local end=$((SECONDS + 120)) run
    until at_daemon list >/dev/null 2>&1; do
        ((SECONDS < end)) || { echo "$machine: no daemon within 120 s; journalctl -u azq-daemon" >&2 && return 1; }
        sleep 1
    done
    for run in "${runs[@]}"; do
        at_daemon show "$run" >/dev/null 2>&1 || create "$run"
        ! systemctl is-enabled --quiet "azq-learner@$run" 2>/dev/null || systemctl start "azq-learner@$run"
    done
    [ -e "$paused" ] || return 0
    while read -r run; do at_daemon resume "$run"; done <"$paused"
    rm -f "$paused"
}

admit() { # MACHINE: a token for it alone
    "${azq[@]}" fleet revoke "$1" --config "$folder/azq.toml" >/dev/null 2>&1 || true
    "${azq[@]}" join-token --config "$folder/azq.toml" --name "$1" --roles "$(roles_of "$1")" --json |
        sed -n 's/.*"token": *"\([^"]*\)".*/\1/p'
}

pause() {
    local run
    for run in "${runs[@]}"; do
        if at_daemon pause "$run" --reason remove.sh; then echo "$run" >>"$paused"; fi
    done
}

leave() {
    "${azq[@]}" systemd uninstall
    echo left >"$note"
}

case $1 in
state | take | runs | admit | pause | leave) "$@" ;;
*) echo "$machine: no word $1" >&2 && exit 2 ;;
esac
