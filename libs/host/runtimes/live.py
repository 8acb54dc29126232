"""The container runtime of this machine, by its CRI socket."""

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from libs.host.holders import unit_of
from libs.host.runtimes.cri import Answer
from libs.host.runtimes.port import RestartRefused, RuntimeStatus, RuntimeUnavailable
from libs.host.tree import Tree, Unreadable

SOCKETS: Final = (
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/crio/crio.sock",
)
"""The sockets of containerd, of k3s and RKE2, and of CRI-O."""
SYSTEMCTL: Final = "/usr/bin/systemctl"
DEADLINE: Final = 20.0
"""Seconds for a question, and for systemd to accept a restart."""
_CHROOT: Final = (
    "import os, sys; os.chroot(sys.argv[1]); os.chdir('/');"
    " os.execve(sys.argv[2], sys.argv[2:], {'PATH': '/usr/bin:/bin'})"
)
_PEER: Final = struct.Struct("3i")


class CriRuntime:
    """The runtime at a socket of the machine below `tree`."""

    def __init__(self, tree: Tree, *, socket: str = "", command: Sequence[str] = ()) -> None:
        """`socket` is a path on the machine; empty: that of the only runtime that is there."""
        self._tree = tree
        self._setting = socket
        self._command = [*(command or (sys.executable, "-m", "libs.host.runtimes.cri"))]

    def instance(self) -> object:
        with suppress(RuntimeUnavailable, Unreadable):
            status = self._tree.status(self._socket())
            return None if status is None else (status.st_ino, status.st_ctime_ns)
        return None

    def status(self) -> RuntimeStatus:
        path = self._socket()
        try:
            pid = self._pid(path)
            answer = self._ask(path)
            if answer.error:
                raise RuntimeUnavailable(f"the container runtime at {path}: {answer.error}")
            return RuntimeStatus(
                name=answer.name,
                version=answer.version,
                handlers=frozenset(answer.handlers),
                reads_cdi=answer.reads_cdi,
                pid=pid,
                config=_config_of((self._tree.read_text(f"/proc/{pid}/cmdline") or "").split("\0")),
                unit=unit_of(self._tree, pid),
            )
        except Unreadable as error:
            raise RuntimeUnavailable(str(error)) from None

    def stop(self, pid: int) -> None:
        if pid <= 1:
            raise RestartRefused("the container runtime's process is not known")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def restart_unit(self, unit: str) -> None:
        # As root on the machine: its own program, and no shell.
        command = (SYSTEMCTL, "restart", "--no-block", "--", unit)
        try:
            done = subprocess.run(  # noqa: S603  (this program, which becomes systemctl)
                [sys.executable, "-I", "-c", _CHROOT, self._tree.root, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=DEADLINE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RestartRefused(f"systemctl restart {unit} did not end") from None
        if done.returncode:
            said = (done.stdout.decode(errors="replace").strip().splitlines() or ["no reason"])[-1]
            raise RestartRefused(f"systemctl restart {unit}: {said[:200]}")

    def _socket(self) -> str:
        if self._setting:
            return self._setting
        found = [path for path in SOCKETS if self._tree.exists(path)]
        if not found:
            raise RuntimeUnavailable(
                "no container runtime has its socket at a usual place: set CONTAINERD_SOCKET in"
                " spec.toolkit.env"
            )
        if len(found) > 1:
            raise RuntimeUnavailable(
                f"there are several container runtimes, {' and '.join(found)}: name the kubelet's"
                " in RUNTIME_SOCKET of spec.toolkit.env"
            )
        return found[0]

    def _pid(self, path: str) -> int:
        """Return the process that listens; 0 if it is not of this process's namespace."""
        real = self._tree.real_path(path)
        if real is None:
            raise RuntimeUnavailable(f"there is no socket {path}: the runtime is not running")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(DEADLINE)
            try:
                connection.connect(real)
            except OSError as error:
                raise RuntimeUnavailable(
                    f"the container runtime does not answer at {path}: {error.strerror}"
                ) from None
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        return _PEER.unpack(peer)[0]

    def _ask(self, path: str) -> Answer:
        try:
            done = subprocess.run(  # noqa: S603  (this program itself)
                [*self._command, self._tree.real_path(path) or path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=DEADLINE,
                check=False,
            )
            return msgspec.json.decode(done.stdout, type=Answer)
        except (subprocess.TimeoutExpired, msgspec.DecodeError, UnicodeDecodeError):
            raise RuntimeUnavailable(f"the container runtime at {path} did not answer") from None


def _config_of(arguments: Sequence[str]) -> str:
    """Return the configuration file that a command line names."""
    for number, argument in enumerate(arguments):
        name, has_value, value = argument.partition("=")
        if name in ("-c", "--config"):
            return value if has_value else next(iter(arguments[number + 1 :]), "")
    return ""
