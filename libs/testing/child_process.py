"""A server as a child of this process: what it says, how it ends, and that it never outlives us.

Must know nothing of what the program is; `libs.testing.nats` does.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from typing import Self, cast

from libs.testing.errors import ServerFailed

WITHIN = 20.0
"""Seconds in which a server has done what it was told, on the slowest machine."""

_CHUNK = 65_536
_TAIL = 20

# The kernel kills the server when the thread that started it ends, also by kill -9. A program of
# its own asks for that, because Python code between fork and exec may hang where there are threads.
_LEASH = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class ChildProcess:
    """One life of a program, from `start` to `end`."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, output: asyncio.StreamReader
    ) -> None:
        self._name = name
        self._process = process
        self._output = output
        self._news = asyncio.Event()
        self._life = asyncio.create_task(self._live(), name=f"listening to {name}")
        self.log = ""

    @classmethod
    async def start(cls, name: str, *argv: str, environ: Mapping[str, str] | None = None) -> Self:
        """`name` is how errors call it; on Linux it dies with the thread that calls this.

        Its environment is ours, unless one is given.
        """
        leash = [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid())]
        process = await asyncio.create_subprocess_exec(
            *(leash if sys.platform == "linux" else ()),
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environ,
            process_group=0,  # a Ctrl-C in the terminal is ours to pass on, or not
        )
        return cls(name, process, cast(asyncio.StreamReader, process.stdout))

    @property
    def pid(self) -> int:
        """Its number, while it lives."""
        if self._life.done():
            raise self.failure("has ended by itself")
        return self._process.pid

    async def wait_for_log(self, *words: str, since: int = 0, within: float = WITHIN) -> str:
        """Wait for the first of these in its log, from that place on."""
        wanted = " or ".join(map(repr, words))
        try:
            async with asyncio.timeout(within):
                while True:
                    self._news.clear()
                    for word in words:
                        if self.log.find(word, since) >= 0:
                            return word
                    if self._life.done():
                        raise self.failure(f"ended before it said {wanted}")
                    await self._news.wait()
        except TimeoutError as error:
            raise self.failure(f"did not say {wanted} within {within:g} s") from error

    def send_signal(self, what: signal.Signals) -> None:
        """Send it a signal; that it has ended is for `said` to find."""
        # Not by the process object: that one looks first whether the child has died, and takes the
        # exit code from asyncio, which then makes up another.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, what)

    async def wait(self) -> None:
        """Wait until it has ended, in whatever way."""
        await asyncio.wait([self._life])

    async def end(self, by: signal.Signals, *, code: int) -> None:
        """End it so; anything but this exit code says that it ended by itself, or badly."""
        self.send_signal(by)
        await asyncio.wait([self._life], timeout=WITHIN)
        if not self._life.done():
            await self.destroy()
            raise self.failure(f"did not end by {by.name} within {WITHIN:g} s and was killed")
        if self._process.returncode != code:
            raise self.failure(f"was to end by {by.name} with exit code {code}, but ended badly")

    async def destroy(self) -> None:
        """End it in any case, and complain of nothing."""
        self.send_signal(signal.SIGKILL)
        await asyncio.wait([self._life])

    def tail(self) -> str:
        """The last lines that it said."""
        return "\n".join(f"  {line}" for line in self.log.splitlines()[-_TAIL:])

    def failure(self, what: str) -> ServerFailed:
        """With what it said last, and with its exit code where it has one."""
        code = self._process.returncode
        exited = "" if code is None else f" (exit code {code})"
        return ServerFailed(f"{self._name} {what}{exited}; its last lines:\n{self.tail()}")

    async def _live(self) -> None:
        while chunk := await self._output.read(_CHUNK):
            self.log += chunk.decode(errors="replace")
            self._news.set()
        await self._process.wait()
        self._news.set()
