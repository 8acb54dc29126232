"""An agent's side of its NVML process (`child`): questions, their deadlines, and its end."""

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Final

from libs.host.gpus.protocol import (
    NO_GPU,
    Event,
    Frames,
    MalformedFrame,
    Ping,
    Reply,
    Request,
    frame,
)

_CHUNK: Final = 1 << 16
_CHUNKS_AT_ONCE: Final = 64
_REASON_SECONDS: Final = 1.0
"""Its pipes are closed a moment before a process has ended."""
MAX_EVENTS: Final = 10_000
"""Events that are kept until they are taken; later ones are only counted."""


class Ended(Exception):
    """The process has ended or was killed, or says what it must not."""


class NvmlProcess:
    """One NVML process. One thread at a time may call it; `kill` is for any thread."""

    def __init__(self, library: str, *, command: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(  # noqa: S603  (this program itself)
            [*(command or (sys.executable, "-m", "libs.host.gpus.child")), library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the NVML process has no pipes, although they were requested")
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stdout.fileno(), False)
        self._killed = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = threading.Lock()
        self._is_closed = False
        self._poll = select.poll()
        self._poll.register(self._stdout, select.POLLIN)
        self._poll.register(self._killed, select.POLLIN)
        self._frames = Frames()
        self._unanswered: dict[int, int] = {}
        self.events: list[Event] = []
        self.lost_events = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def replies(self) -> int:
        """The descriptor from which replies are read."""
        return self._stdout.fileno()

    @property
    def owing(self) -> frozenset[int]:
        """The GPUs that owe an answer; each may hang, or merely be late."""
        return frozenset(self._unanswered.values()) - {NO_GPU}

    def runs(self, id: int, *, within: float) -> bool:
        """Return whether the process, rather than a GPU, answers in this time."""
        if NO_GPU in self._unanswered.values():  # it owes the answer to an earlier ping
            self._receive(within)
            return NO_GPU not in self._unanswered.values()
        return NO_GPU in self.ask([Ping(id)], seconds=within)

    def send(self, question: Request) -> None:
        """Ask without waiting for the answer, which `take_late_answers` finds."""
        self._unanswered[question.id] = question.gpu
        self._write(frame(question))

    def ask(
        self, questions: Sequence[Request], *, seconds: float, late: float = inf
    ) -> dict[int, Reply]:
        """Return the answers by GPU; a GPU that does not answer in time has none.

        `late` are the seconds for which more answers are awaited after one. Raise `Ended` if the
        process does, or is killed by another thread meanwhile.
        """
        gpus = {question.id: question.gpu for question in questions}
        self._unanswered |= gpus
        self._write(b"".join(map(frame, questions)))
        found: dict[int, Reply] = {}
        now = time.monotonic()
        end = last = now + seconds
        while not gpus.keys() <= found.keys() and now < end:
            answers = self._receive(end - now) or {}
            now = time.monotonic()
            if answers.keys() & gpus.keys():
                end = min(last, now + late)
            found |= answers
        return {gpus[key]: reply for key, reply in found.items() if key in gpus}

    def take_late_answers(self) -> None:
        """Find out which GPUs answer again; their old answers are dropped."""
        for _ in range(_CHUNKS_AT_ONCE):
            if self._receive(0.0) is None:
                break

    def kill(self) -> None:
        """End the process, and the wait of a thread for its answer."""
        with self._closing:
            if not self._is_closed:
                self._process.kill()
                os.eventfd_write(self._killed, 1)

    def has_ended(self, *, within: float = 0.0) -> bool:
        """Wait for the end of a killed process, whose device files are closed then.

        A process that waits in the driver is not ended by a kill.
        """
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        return True

    def waits_in_the_kernel(self) -> bool:
        """Return whether a thread of it waits where no signal ends the wait."""
        stats = Path(f"/proc/{self.pid}/task").glob("*/stat")
        return any(b") D " in _content(stat) for stat in stats)

    def end_reason(self) -> str:
        if not self.has_ended(within=_REASON_SECONDS):
            return "it stopped answering"
        code = self._process.returncode
        return f"it was ended by signal {-code}" if code < 0 else f"it ended with code {code}"

    def close(self) -> None:
        """Read what an ended process left, and close its pipes."""
        try:
            while data := os.read(self.replies, _CHUNK):
                self._sort(data)
        except (BlockingIOError, Ended):
            pass
        with self._closing:
            self._is_closed = True
            self._stdin.close()
            self._stdout.close()
            os.close(self._killed)

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._stdin.fileno(), data)
        except OSError as error:
            raise Ended(f"its pipe is {error.strerror}") from None
        if written < len(data):
            raise Ended("it does not read its questions")

    def _receive(self, seconds: float) -> dict[int, Reply] | None:
        """Return what arrives in this time by question; None if nothing does."""
        ready = {file for file, _ in self._poll.poll(seconds * 1000)}
        if self._killed in ready:
            raise Ended("it was killed")
        if not ready:
            return None
        data = os.read(self.replies, _CHUNK)
        if not data:
            raise Ended("it ended")
        return self._sort(data)

    def _sort(self, data: bytes) -> dict[int, Reply]:
        try:
            replies = self._frames.feed(data)
        except MalformedFrame as error:
            raise Ended(str(error)) from None
        answers: dict[int, Reply] = {}
        for reply in replies:
            if not isinstance(reply, Event):
                self._settle(reply.id)
                answers[reply.id] = reply
            elif len(self.events) < MAX_EVENTS:
                self.events.append(reply)
            else:
                self.lost_events += 1
        return answers

    def _settle(self, id: int) -> None:
        """Take a question as answered; with it go earlier ones to the same GPU.

        A GPU that answers does not hang, even if one of its calls does.
        """
        gpu = self._unanswered.pop(id, None)
        for earlier in [each for each, other in self._unanswered.items() if other == gpu]:
            if earlier < id:
                del self._unanswered[earlier]


def _content(file: Path) -> bytes:
    """Return the content of a file in `/proc`; empty once its thread has ended."""
    try:
        return file.read_bytes()
    except OSError:
        return b""
