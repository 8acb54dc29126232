"""A process that has imported the command and forks for each run of it: a start imports nothing.

A run is a process of its own, in a terminal of its own, as one that is started anew would be.
"""

import atexit
import contextlib
import fcntl
import functools
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence

from libs.ctl.command import main
from libs.testing.child_process import bytecode_environ
from tests.run.leavings import SHARED

_IMPORTED = (
    "libs.bus.nats.bus",
    "libs.ctl.verbs",
    "libs.ctl.watch.program",
    "libs.kube.connect",
)
"""What `sluice watch` imports, with NATS."""
_MOST = 65_536
"""Bytes of a request."""


class WarmRun:
    """A run of the command, with what a `Popen` has."""

    def __init__(self, status: socket.socket) -> None:
        self._status = status.makefile("r")
        status.close()
        self.pid = int(self._status.readline())
        self._code: int | None = None

    def send_signal(self, number: signal.Signals) -> None:
        if self._code is None:
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Return the exit code, that of a signal as a negative number."""
        if self._code is None:
            self._code = int(self._status.readline())
            self._status.close()
        return self._code


class _Warm:
    """The process, and the socket by which it is asked for runs."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C in the terminal of the tests reaches only them
            env={"PATH": os.environ["PATH"], **bytecode_environ()},
        )
        SHARED.add(self._process.pid)
        theirs.close()
        atexit.register(self._end)

    def run(self, arguments: Sequence[str], environ: Mapping[str, str], terminal: int) -> WarmRun:
        ours, theirs = socket.socketpair()
        request = json.dumps([arguments, dict(environ)]).encode()
        with theirs:
            socket.send_fds(self._socket, [request], [terminal, theirs.fileno()])
        return WarmRun(ours)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


_warm = functools.cache(_Warm)


def run_warm(arguments: Sequence[str], environ: Mapping[str, str], terminal: int) -> WarmRun:
    """Run the command in a terminal with these variables alone."""
    return _warm().run(arguments, environ, terminal)


def take_terminal(terminal: int) -> None:
    """Make a terminal that of this process, which it controls.

    Ctrl-C is as in a shell, also where the tests run in the background and ignore it.
    """
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _serve() -> None:
    """Run what is asked for until nobody can ask."""
    with socket.socket(fileno=os.dup(0)) as asked:
        while True:
            request, descriptors, _, _ = socket.recv_fds(asked, _MOST, 2)
            if not request:
                return
            terminal, status = descriptors
            if os.fork() == 0:
                asked.close()
                os._exit(_watch_over(request, terminal, status))
            os.close(terminal)
            os.close(status)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _watch_over(request: bytes, terminal: int, status: int) -> int:
    """Run the command in a child; tell its process id, and how it ended."""
    child = os.fork()
    if child == 0:
        os.close(status)
        arguments, environ = json.loads(request)
        os._exit(_run(arguments, environ, terminal))
    os.close(terminal)
    os.write(status, f"{child}\n".encode())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(status, f"{code}\n".encode())
    return 0


def _run(arguments: Sequence[str], environ: Mapping[str, str], terminal: int) -> int:
    """Run the command as a program of its own in the terminal."""
    os.setsid()
    for descriptor in range(3):
        os.dup2(terminal, descriptor)
    os.close(terminal)
    take_terminal(0)
    os.environ.clear()
    os.environ.update(environ)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    code = main(arguments)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


if __name__ == "__main__":
    for name in _IMPORTED:
        importlib.import_module(name)
    _serve()
