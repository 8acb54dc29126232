"""How long things take on a machine, and how they end: the questions, and a simple world.

Whoever simulates a machine asks here instead of rolling dice himself, and whoever foresees a
rollout asks the same. The same question always has the same answer. Must not know who asks, what
the time is, or what an answer sets in motion.
"""

import hashlib
from typing import Protocol

import msgspec


class Span(msgspec.Struct, frozen=True):
    """How long something takes; no seconds: it never comes to an end."""

    seconds: float | None


class Ending(msgspec.Struct, frozen=True):
    """After how long a process ends by itself, and how; no time: it runs until it is stopped."""

    after: float | None
    exit_code: int = 0


NEVER = Span(None)
RUNS_ON = Ending(None)


class Model(Protocol):
    """What a machine can be asked.

    A workload is what made the pod (a DaemonSet, a Job), by its name. An attempt counts the starts
    of that container of that workload on that node, from 0 on, over all of its pods.
    """

    def pull(self, node: str, workload: str, container: str) -> Span:
        """From the container's turn until it can start: its image, mostly."""
        ...

    def init(self, node: str, workload: str, container: str, attempt: int) -> Ending:
        """How a start of an init container ends."""
        ...

    def ready(self, node: str, workload: str, container: str, attempt: int) -> Span:
        """From a container's start until it is ready."""
        ...

    def run(self, node: str, workload: str, container: str, attempt: int) -> Ending:
        """How a container ends that is meant to run for ever."""
        ...

    def job(self, node: str, workload: str, container: str, attempt: int) -> Ending:
        """How a container ends that is meant to come to an end."""
        ...

    def stop(self, node: str, workload: str, container: str) -> Span:
        """From the request to stop until the container has ended; it has no longer than its grace.

        Of all that run in a pod the slowest counts.
        """
        ...

    def boot(self, node: str, attempt: int) -> Span:
        """From a machine's going down until its kubelet speaks again."""
        ...


class Oddity(msgspec.Struct, frozen=True, kw_only=True):
    """Where something goes otherwise than usual, and how; an empty name stands for any."""

    node: str = ""
    workload: str = ""
    container: str = ""
    attempts: int | None = None
    """So many first attempts are odd, the later ones as usual; None: all are."""

    pull: Span | None = None
    init: Ending | None = None
    ready: Span | None = None
    run: Ending | None = None
    job: Ending | None = None
    stop: Span | None = None
    boot: Span | None = None

    def concerns(self, node: str, workload: str, container: str, attempt: int) -> bool:
        """Whether it is about this start."""
        return (
            self.node in ("", node)
            and self.workload in ("", workload)
            and self.container in ("", container)
            and (self.attempts is None or attempt < self.attempts)
        )


class Steady(msgspec.Struct, frozen=True, kw_only=True):
    """A world in which everything works and takes its usual time, but for its oddities.

    Of several oddities about one thing the first has the word. With a `spread` each usual time is
    longer by up to that part of it, differently for each question and each seed.
    """

    seed: int = 0
    spread: float = 0.0
    oddities: tuple[Oddity, ...] = ()

    pulling: float = 2.0
    preparing: float = 1.0
    starting: float = 1.0
    working: float = 60.0
    stopping: float = 1.0
    booting: float = 90.0

    def pull(self, node: str, workload: str, container: str) -> Span:
        """As usual, or odd."""
        for odd in self._odd(node, workload, container, 0):
            if odd.pull is not None:
                return odd.pull
        return Span(self._usual(self.pulling, "pull", node, workload, container))

    def init(self, node: str, workload: str, container: str, attempt: int) -> Ending:
        """As usual it succeeds."""
        for odd in self._odd(node, workload, container, attempt):
            if odd.init is not None:
                return odd.init
        return Ending(self._usual(self.preparing, "init", node, workload, container, attempt))

    def ready(self, node: str, workload: str, container: str, attempt: int) -> Span:
        """As usual it gets ready."""
        for odd in self._odd(node, workload, container, attempt):
            if odd.ready is not None:
                return odd.ready
        return Span(self._usual(self.starting, "ready", node, workload, container, attempt))

    def run(self, node: str, workload: str, container: str, attempt: int) -> Ending:
        """As usual it runs on."""
        for odd in self._odd(node, workload, container, attempt):
            if odd.run is not None:
                return odd.run
        return RUNS_ON

    def job(self, node: str, workload: str, container: str, attempt: int) -> Ending:
        """As usual it succeeds."""
        for odd in self._odd(node, workload, container, attempt):
            if odd.job is not None:
                return odd.job
        return Ending(self._usual(self.working, "job", node, workload, container, attempt))

    def stop(self, node: str, workload: str, container: str) -> Span:
        """As usual, or odd."""
        for odd in self._odd(node, workload, container, 0):
            if odd.stop is not None:
                return odd.stop
        return Span(self._usual(self.stopping, "stop", node, workload, container))

    def boot(self, node: str, attempt: int) -> Span:
        """As usual it comes back."""
        for odd in self._odd(node, "", "", attempt):
            if odd.boot is not None:
                return odd.boot
        return Span(self._usual(self.booting, "boot", node, attempt))

    def _odd(self, node: str, workload: str, container: str, attempt: int) -> list[Oddity]:
        return [odd for odd in self.oddities if odd.concerns(node, workload, container, attempt)]

    def _usual(self, seconds: float, *question: object) -> float:
        if not self.spread:
            return seconds
        asked = "/".join(map(str, (self.seed, *question)))
        digest = hashlib.blake2b(asked.encode(), digest_size=8).digest()
        return seconds * (1.0 + self.spread * int.from_bytes(digest) / 2**64)
