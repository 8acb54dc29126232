"""NVML processes that are forks of one that has imported all: most of a start is its imports.

They are for tests of what a process answers. Those of the process itself start a real one.
`python -m tests.component.gpus.forks <socket>` is the process that forks.
"""

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from libs.host.gpus import child, process
from tests.run.leavings import SHARED

COMMAND = [sys.executable, "-m", "libs.host.gpus.child"]
MAX_MESSAGE = 1 << 16
"""Bytes of one question: mostly the environment."""


class Forks:
    """The process that forks; it ends with this one."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.component.gpus.forks", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        SHARED.add(self._process.pid)
        self._one_at_a_time = threading.Lock()
        atexit.register(self._end)

    def start(self, library: str, environ: Mapping[str, str], files: Sequence[int]) -> int:
        """Return the number of a new process with these files as its input and output."""
        question = json.dumps([library, dict(environ)]).encode()
        with self._one_at_a_time:
            socket.send_fds(self._socket, [question], files)
            return int(self._socket.recv(MAX_MESSAGE))

    def reap(self, pid: int) -> int:
        """Return the exit code of a process that has ended."""
        with self._one_at_a_time:
            self._socket.send(json.dumps(pid).encode())
            return int(self._socket.recv(MAX_MESSAGE))

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def forks() -> Forks:
    return Forks()


class Fork:
    """A fork as its agent sees it: what it uses of `Popen`."""

    def __init__(self, library: str, environ: Mapping[str, str]) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        self.stdin = os.fdopen(ours_in, "wb", buffering=0)
        self.stdout = os.fdopen(ours_out, "rb", buffering=0)
        self.pid = forks().start(library, environ, (theirs_in, theirs_out))
        os.close(theirs_in)
        os.close(theirs_out)
        self._end = os.pidfd_open(self.pid)
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None:
            signal.pidfd_send_signal(self._end, signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._end, select.POLLIN)
            if not poll.poll(timeout * 1000):
                raise subprocess.TimeoutExpired(COMMAND, timeout)
            self.returncode = forks().reap(self.pid)
            os.close(self._end)
        return self.returncode


def _start(command: Sequence[str], *, env: Mapping[str, str], **more: Any) -> object:
    """Stand in for `Popen`, which starts what is another program."""
    if command[:-1] == COMMAND:
        return Fork(command[-1], env)
    return subprocess.Popen(command, env=env, **more)


def use_forks(patch: pytest.MonkeyPatch) -> None:
    """Let all NVML processes of a test be forks."""
    stand_in = SimpleNamespace(
        Popen=_start, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired
    )
    patch.setattr(process, "subprocess", stand_in)


def _serve(asked: socket.socket) -> None:
    """Fork and reap until the other side ends."""
    while True:
        data, files, _, _ = socket.recv_fds(asked, MAX_MESSAGE, 2)
        if not data:
            return
        match json.loads(data):
            case [library, environ]:
                pid = os.fork()
                if not pid:
                    asked.close()
                    _become(library, environ, files)
                for file in files:
                    os.close(file)
                answer = pid
            case pid:
                answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        asked.send(str(answer).encode())


def _become(library: str, environ: dict[str, str], files: list[int]) -> None:
    """Be the NVML process that `COMMAND` starts with this library and environment."""
    os.environ.clear()
    os.environ.update(environ)
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    sys.argv[1:] = [library]
    child.main()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as _asked:
        _serve(_asked)
