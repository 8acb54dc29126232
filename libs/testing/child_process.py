"""Child processes of tests, and the loopback ports reserved for them."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Self, cast

from libs.testing.errors import ServerFailed

HOST = "127.0.0.1"


def bytecode_environ(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what lets a Python program use the folder for bytecode that this process has.

    Without one it writes none: no test changes the checkout.
    """
    folder = environ.get("PYTHONPYCACHEPREFIX", "")
    return {"PYTHONPYCACHEPREFIX": folder} if folder else {"PYTHONDONTWRITEBYTECODE": "1"}


class ReservedPort:
    """A port held by a bound socket that never listens.

    Connections are refused, the system gives the number to nothing else, and a server with
    that number can listen on it.
    """

    def __init__(self, wanted: int = 0) -> None:
        self._held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Makes a second socket on the port possible, together with the listener's own option.
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._held.bind((HOST, wanted))
        except OSError as error:
            self._held.close()
            raise ServerFailed(
                f"cannot reserve port {wanted} of {HOST} ({error}): "
                "end what holds it, or let the system choose with port=0"
            ) from error
        self.number = int(self._held.getsockname()[1])

    def release(self) -> None:
        self._held.close()


WITHIN = 20.0
"""Seconds for a server to react, on the slowest machine."""

_CHUNK = 65_536
_TAIL = 20

# Have the kernel kill the server when the thread that started it ends, also by kill -9. A separate
# program requests that, because Python code between fork and exec may hang with threads.
_LEASH = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class ChildProcess:
    """One run of a program, from `start` to `end`."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, output: asyncio.StreamReader
    ) -> None:
        self._name = name
        self._process = process
        self._output = output
        self._changed = asyncio.Event()
        self._reader = asyncio.create_task(self._read_output(), name=f"output of {name}")
        self.log = ""

    @classmethod
    async def start(
        cls,
        name: str,
        *argv: str,
        environ: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
    ) -> Self:
        """Start a program; `name` appears in errors. On Linux it dies with the calling thread.

        The environment is inherited unless one is given; so are these file descriptors.
        """
        leash = [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid())]
        process = await asyncio.create_subprocess_exec(
            *(leash if sys.platform == "linux" else ()),
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environ,
            pass_fds=descriptors,
            process_group=0,  # Ctrl-C in the terminal reaches only us
        )
        return cls(name, process, cast(asyncio.StreamReader, process.stdout))

    @property
    def pid(self) -> int:
        """The process id; raises `ServerFailed` if the process has ended."""
        if self._reader.done():
            raise self.failure("has ended by itself")
        return self._process.pid

    async def wait_for_log(self, *words: str, since: int = 0, within: float = WITHIN) -> str:
        """Wait for the first of these words in the log after `since`; return it."""
        expected = " or ".join(map(repr, words))
        try:
            async with asyncio.timeout(within):
                while True:
                    self._changed.clear()
                    for word in words:
                        if self.log.find(word, since) >= 0:
                            return word
                    if self._reader.done():
                        raise self.failure(f"ended before it logged {expected}")
                    await self._changed.wait()
        except TimeoutError as error:
            raise self.failure(f"did not log {expected} within {within:g} s") from error

    def send_signal(self, signal_number: signal.Signals) -> None:
        """Send a signal, if the process still exists."""
        # Not through the process object: it polls the child first and so takes the exit code away
        # from asyncio, which then makes up another one.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal_number)

    async def wait(self) -> None:
        """Wait until the process has ended, however it ends."""
        await asyncio.wait([self._reader])

    async def end(self, by: signal.Signals, *, code: int) -> None:
        """End the process; any other exit code than `code` is an error."""
        self.send_signal(by)
        await asyncio.wait([self._reader], timeout=WITHIN)
        if not self._reader.done():
            await self.destroy()
            raise self.failure(f"did not end by {by.name} within {WITHIN:g} s and was killed")
        if self._process.returncode != code:
            raise self.failure(f"did not end by {by.name} with exit code {code}")

    async def destroy(self) -> None:
        """Kill the process without checking its exit code."""
        self.send_signal(signal.SIGKILL)
        await asyncio.wait([self._reader])

    def problem(self) -> str | None:
        """Return that it has ended, with its last lines; nothing while it runs."""
        return str(self.failure("has ended")) if self._reader.done() else None

    def tail(self) -> str:
        """Return the last lines of the log."""
        return "\n".join(f"  {line}" for line in self.log.splitlines()[-_TAIL:])

    def failure(self, problem: str) -> ServerFailed:
        """Build an error with the exit code and the last lines of the log."""
        code = self._process.returncode
        exited = "" if code is None else f" (exit code {code})"
        return ServerFailed(f"{self._name} {problem}{exited}; its last lines:\n{self.tail()}")

    async def _read_output(self) -> None:
        while chunk := await self._output.read(_CHUNK):
            self.log += chunk.decode(errors="replace")
            self._changed.set()
        await self._process.wait()
        self._changed.set()
