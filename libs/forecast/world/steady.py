"""A simple world: everything works and takes its usual time, but for what it was told is odd.

For tests that tell one story. Must not know of distributions: a test names what it wants to see.
"""

import hashlib

import msgspec

from libs.forecast.world.questions import RUNS_ON, Ending, Span, Verdict


class Oddity(msgspec.Struct, frozen=True, kw_only=True):
    """Where something goes otherwise than usual, and how; an empty name stands for any."""

    node: str = ""
    workload: str = ""
    container: str = ""
    driver: str = ""
    pod: str = ""
    """Where a pod is asked about, it alone is compared."""
    attempts: int | None = None
    """So many first attempts are odd, the later ones as usual; None: all are."""

    pull: Span | None = None
    init: Ending | None = None
    ready: Span | None = None
    run: Ending | None = None
    job: Ending | None = None
    stop: Span | None = None
    boot: Span | None = None

    unload: Ending | None = None
    load: Ending | None = None
    validation: Verdict | None = None
    refusal: Span | None = None
    eviction: Span | None = None
    remainder: Span | None = None

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
    unloading: float = 3.0
    loading: float = 20.0
    validating: float = 10.0

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

    def unload(self, node: str, attempt: int) -> Ending:
        """As usual nobody holds the modules."""
        for odd in self._odd(node, "", "", attempt):
            if odd.unload is not None:
                return odd.unload
        return Ending(self._usual(self.unloading, "unload", node, attempt))

    def load(self, node: str, driver: str, attempt: int) -> Ending:
        """As usual it works."""
        for odd in self._odd(node, "", "", attempt):
            if odd.load is not None and odd.driver in ("", driver):
                return odd.load
        return Ending(self._usual(self.loading, "load", node, driver, attempt))

    def validation(self, node: str, driver: str, attempt: int) -> Verdict:
        """As usual it passes."""
        for odd in self._odd(node, "", "", attempt):
            if odd.validation is not None and odd.driver in ("", driver):
                return odd.validation
        return Verdict(self._usual(self.validating, "validation", node, driver, attempt))

    def refusal(self, pod: str) -> Span:
        """As usual no budget is in the way."""
        for odd in self.oddities:
            if odd.refusal is not None and odd.pod in ("", pod):
                return odd.refusal
        return Span(0.0)

    def eviction(self, pod: str, grace: float) -> Span:
        """As usual it stops like any container, and never after its grace."""
        for odd in self.oddities:
            if odd.eviction is not None and odd.pod in ("", pod):
                return odd.eviction
        return Span(min(grace, self._usual(self.stopping, "eviction", pod)))

    def remainder(self, pod: str, age: float) -> Span:
        """As usual a job takes as long as any other, and one that took longer is at its end."""
        for odd in self.oddities:
            if odd.remainder is not None and odd.pod in ("", pod):
                return odd.remainder
        return Span(max(0.0, self._usual(self.working, "remainder", pod) - age))

    def _odd(self, node: str, workload: str, container: str, attempt: int) -> list[Oddity]:
        return [odd for odd in self.oddities if odd.concerns(node, workload, container, attempt)]

    def _usual(self, seconds: float, *question: object) -> float:
        if not self.spread:
            return seconds
        asked = "/".join(map(str, (self.seed, *question)))
        digest = hashlib.blake2b(asked.encode(), digest_size=8).digest()
        return seconds * (1.0 + self.spread * int.from_bytes(digest) / 2**64)
