"""`python without_linux.py COMMAND ...`: runs a command without /proc and with prctl(2) refused, as systems other than Linux have neither.

/proc/cpuinfo stays: PyTorch's build for Linux reads it. Needs root, for the mounts. Sockets, locks, signals and pipes stay Linux's.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import subprocess
import sys

_HIDE = 'read -d "" -r info </proc/cpuinfo; mount -t tmpfs none /proc && echo "$info" >/proc/cpuinfo && exec "$@"'
HIDDEN = ("unshare", "--mount", "bash", "-c", _HIDE, "bash", sys.executable, "-P", __file__)
_ARCHITECTURES = {"x86_64": (0xC000003E, 157), "aarch64": (0xC00000B7, 167)}  # number of the architecture, and of prctl there
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001  # SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO with EPERM
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2


def why_not() -> str:
    """Why this machine cannot run such a command; empty where it can."""
    if platform.machine() not in _ARCHITECTURES:
        return f"no number of prctl is known for {platform.machine()}"
    try:
        done = subprocess.run([*HIDDEN, "true"], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return done.stderr.strip()


def refuse_prctl() -> None:
    """Has the kernel answer EPERM to prctl of this process and all that descend from it."""
    architecture, prctl = _ARCHITECTURES[platform.machine()]
    program = (
        (_LOAD, 0, 0, 4),  # of seccomp_data: the architecture
        (_JUMP_IF_EQUAL, 0, 3, architecture),
        (_LOAD, 0, 0, 0),  # the number of the call
        (_JUMP_IF_EQUAL, 0, 1, prctl),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    libc = ctypes.CDLL(None, use_errno=True)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_SET_SECCOMP, _FILTER, header):
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    refuse_prctl()
    if not ctypes.CDLL(None).prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or os.listdir("/proc") != ["cpuinfo"]:
        sys.exit("prctl is not refused, or /proc is not hidden")
    os.execvp(sys.argv[1], sys.argv[1:])
