#!/usr/bin/env bash
# boot-namespace.sh - boot a REAL systemd as PID 1 of a private namespace, run
# commands against it, throw it away.  Needs: root, CAP_SYS_ADMIN, util-linux,
# bash, /lib/systemd/systemd, overlayfs.  No network, no image, no container
# engine, no dbus-daemon; boots in < 1 s.  The host's PID 1 may be anything.
#
#   boot-namespace.sh check                        exit 0 = possible, 77 = skip (reason on stderr)
#   boot-namespace.sh boot STATE [opts]            boot; STATE is a new directory (pid, console.log)
#   boot-namespace.sh exec STATE CMD...            run CMD inside (systemctl, journalctl, curl, pytest ...)
#   boot-namespace.sh halt STATE                   clean shutdown (units get ExecStop), then SIGKILL
#
# opts:  --copy TREE        tree copied over the private root before PID 1 starts
#                           (TREE/etc/systemd/system/azq-daemon.service ...)
#        --bind SRC[:DST]   bind a host path read-write (needed for anything NOT on the root
#                           filesystem; the root filesystem itself is visible, copy-on-write)
#        --net private|host default private: own loopback, so ports never collide
#        --unit TARGET      default basic.target
#        --max SECONDS      hard life of the namespace, default 300 (even if the caller is SIGKILLed)
#
# What is real inside: PID 1, cgroups (own cgroup namespace on a cgroup2 mount), sd_notify,
# watchdogs, Restart=, StartLimit, templates, sandboxing directives, journald, users, RuntimeDirectory.
# What may be missing: resource CONTROLLERS (MemoryMax=, CPUQuota= are accepted but enforced only
# where the host has the controller on cgroup2), udev, logind, dbus.
#
# Safety: the root is an overlay whose upper layer is a size-limited tmpfs in a private mount
# namespace: nothing is written to the host, and nothing is left when the namespace dies.
# sysfs and /proc/sys are read-only, so sysctl.d, modules-load and binfmt cannot touch the host.
# The shutdown is asked for by a signal to OUR pid 1 (never `systemctl poweroff`).
set -u
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
ME=$(readlink -f "$0")
SYSTEMD=/lib/systemd/systemd; [ -x $SYSTEMD ] || SYSTEMD=/usr/lib/systemd/systemd
skip() { echo "boot-namespace: cannot: $*" >&2; exit 77; }

check() {
    [ "$(id -u)" = 0 ] || skip "not root"
    [ -x $SYSTEMD ] || skip "systemd is not installed"
    local t; for t in unshare nsenter pivot_root mount timeout setsid; do
        command -v $t >/dev/null || skip "$t is missing (util-linux/coreutils)"; done
    grep -q cgroup2 /proc/filesystems || skip "kernel without cgroup2"
    unshare --mount --pid --ipc --uts --cgroup --net --fork --propagation private \
        sh -c 'mount -t proc proc /proc && mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w /mnt/r &&
               mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r' \
        2>/dev/null || skip "namespaces or overlayfs refused (container without CAP_SYS_ADMIN?)"
}

# --- stage 1: private mount namespace on the host side; owns the cgroup and the time limit
stage1() {
    local cgm cg i rc max=$2
    cgm=$(awk '{for(i=7;i<=NF;i++) if($i=="-"&&$(i+1)=="cgroup2"){print $5;exit}}' /proc/self/mountinfo)
    if [ -z "$cgm" ]; then                      # pure cgroup v1 host: a mount of our own
        cgm=$1/cg; mkdir -p "$cgm"; mount -t cgroup2 cgroup2 "$cgm" || exit 77
    fi
    for i in "$cgm"/azqsd.*; do                 # sweep what a SIGKILLed earlier run left
        [ -d "$i" ] && grep -q 'populated 0' "$i/cgroup.events" &&
            find "$i" -depth -type d -exec rmdir {} \; 2>/dev/null; done
    cg=$cgm/azqsd.$$
    mkdir "$cg" || exit 77
    (   echo 0 >"$cg/cgroup.procs" || exit 77   # 0 = myself: the cgroup namespace root is this group
        exec timeout -s KILL "$max" \
            unshare --mount --pid --ipc --uts --cgroup $3 --fork --kill-child=KILL --propagation private \
            "$ME" __stage2 "${@:4}"
    ); rc=$?
    for i in 1 2 3 4 5 6 7 8 9 10; do           # the kernel may take a moment to reap
        find "$cg" -depth -type d -exec rmdir {} \; 2>/dev/null; [ -d "$cg" ] || break; sleep .1; done
    exit $rc
}

# --- stage 2: we are PID 1 of the new PID namespace, still on the old root
stage2() {
    set -e
    local state=$1 unit=$2 copy=$3 b src dst n me; shift 3
    read -r me _ </proc/self/stat               # /proc is still the host's: this is our HOST pid
    exec 9>"$state/pid.tmp"
    local w=$state/mnt r=$state/mnt/root
    mkdir -p "$w"
    mount -t tmpfs -o mode=755,size=1g azqsd "$w"
    mkdir "$w/u" "$w/w" "$r"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$w/u,workdir=$w/w" "$r"
    mount -t proc proc "$r/proc"
    mount --bind "$r/proc/sys" "$r/proc/sys";  mount -o remount,bind,ro "$r/proc/sys"
    mount --bind /dev/null "$r/proc/sysrq-trigger" 2>/dev/null || :
    mount -t sysfs -o ro sysfs "$r/sys"
    mount -t cgroup2 cgroup2 "$r/sys/fs/cgroup"  # in our cgroup namespace: only our own subtree
    mount -t tmpfs -o mode=755,size=1m dev "$r/dev"
    for n in null zero full random urandom tty; do
        : >"$r/dev/$n"; mount --bind "/dev/$n" "$r/dev/$n"; done
    mkdir "$r/dev/pts" "$r/dev/shm" "$r/dev/mqueue"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$r/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$r/dev/shm"
    ln -s pts/ptmx "$r/dev/ptmx"; ln -s /proc/self/fd "$r/dev/fd"
    ln -s fd/0 "$r/dev/stdin"; ln -s fd/1 "$r/dev/stdout"; ln -s fd/2 "$r/dev/stderr"
    mount -t tmpfs -o mode=755,size=256m run "$r/run"
    mount -t tmpfs -o mode=1777,size=512m tmp "$r/tmp"     # the host's /tmp is not ours: use --bind
    [ ! -d "$r/var/log/journal" ] || mount -t tmpfs -o mode=755 journal "$r/var/log/journal"
    mkdir -p "$r/etc/systemd/system"
    for n in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
             logrotate.timer man-db.timer dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount \
             sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount tmp.mount \
             systemd-sysctl.service systemd-modules-load.service systemd-binfmt.service \
             proc-sys-fs-binfmt_misc.automount systemd-random-seed.service systemd-remount-fs.service \
             systemd-udevd.service systemd-udev-trigger.service systemd-udevd-kernel.socket \
             systemd-udevd-control.socket systemd-hwdb-update.service systemd-timesyncd.service \
             systemd-firstboot.service ldconfig.service modprobe@.service systemd-journald-audit.socket \
             systemd-journal-flush.service systemd-tmpfiles-clean.timer getty.target; do
        ln -sfn /dev/null "$r/etc/systemd/system/$n"; done
    printf '# azqsd\n' >"$r/etc/fstab"          # no host mounts, no fsck, no swap
    for b; do                                   # --bind SRC[:DST]
        src=${b%%:*}; dst=${b#*:}
        if [ -d "$src" ]; then mkdir -p "$r$dst"; else mkdir -p "$(dirname "$r$dst")"; : >>"$r$dst"; fi
        mount --rbind "$src" "$r$dst"; done
    [ "$copy" = - ] || cp -a --no-preserve=ownership "$copy/." "$r/"
    cd "$r"; mkdir -p .oldroot; pivot_root . .oldroot; umount -l .oldroot
    mount --make-rshared /                      # or LoadCredential= mounts never reach the services
    hostname azqsd 2>/dev/null || :
    printf '%s\n' "$me" >&9; exec 9>&-
    exec env -i container=azqsd LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        $SYSTEMD --system --unit="$unit" --log-target=auto --log-level=info --show-status=no
}

inside() { local p=$1; shift; nsenter -t "$p" -m -u -i -n -p -C -- "$@"; }

boot() {
    local state=$1 unit=basic.target copy=- net=--net max=300 binds=() i p; shift
    while [ $# -gt 0 ]; do case $1 in
        --copy) copy=$(readlink -f "$2");; --bind) [[ $2 == *:* ]] && binds+=("$2") || binds+=("$2:$2");;
        --net) [ "$2" = host ] && net= ;; --unit) unit=$2;; --max) max=$2;;
        *) echo "boot-namespace: unknown option $1" >&2; return 64;; esac; shift 2; done
    mkdir -p "$state"; state=$(readlink -f "$state"); rm -f "$state/pid" "$state/pid.tmp"
    setsid unshare --mount --propagation private "$ME" __stage1 "$state" "$max" "$net" \
        "$state" "$unit" "$copy" ${binds[@]+"${binds[@]}"} </dev/null >"$state/console.log" 2>&1 &
    echo $! >"$state/guard"
    for ((i = 0; i < 200; i++)); do             # <= 10 s until PID 1 listens
        p=$(cat "$state/pid.tmp" 2>/dev/null)
        [ -n "$p" ] && [ -S "/proc/$p/root/run/systemd/private" ] && break
        kill -0 "$(cat "$state/guard")" 2>/dev/null || break; sleep .05; done
    [ -n "${p:-}" ] && [ -d "/proc/$p" ] || { cat "$state/console.log" >&2; skip "PID 1 did not come up"; }
    echo "$p" >"$state/pid"; rm -f "$state/pid.tmp"
    # "running" or "degraded" both mean the boot transaction is over
    i=$(timeout 30 nsenter -t "$p" -m -u -i -n -p -C -- systemctl is-system-running --wait 2>/dev/null)
    case $i in running|degraded) return 0;; *) echo "boot-namespace: state '$i'" >&2
        tail -20 "$state/console.log" >&2; halt "$state"; return 1;; esac
}

halt() {
    local p g i; p=$(cat "$1/pid" 2>/dev/null) || return 0; g=$(cat "$1/guard")
    kill -s RTMIN+4 "$p" 2>/dev/null            # systemd: start poweroff.target (ExecStop etc. run)
    for ((i = 0; i < 400; i++)); do [ -d "/proc/$p" ] || break; sleep .05; done   # <= 20 s
    kill -KILL "$p" 2>/dev/null                 # PID 1 of the namespace: takes everything with it
    for ((i = 0; i < 60; i++)); do kill -0 "$g" 2>/dev/null || break; sleep .05; done
    rm -rf "$1/pid" "$1/guard"; rmdir "$1/mnt" 2>/dev/null; return 0
}

case ${1:-} in
    __stage1) shift; stage1 "$@";; __stage2) shift; stage2 "$@";;
    check) check;;  boot) shift; check; boot "$@";;  halt) halt "$2";;
    exec) s=$2; shift 2; [ "${1:-}" = -- ] && shift; inside "$(cat "$s/pid")" "$@";;
    *) sed -n '2,40p' "$ME"; exit 64;;
esac
