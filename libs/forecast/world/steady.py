"""A world in which everything works and takes its usual time, except for overrides. For tests."""

import hashlib

import msgspec

from libs.forecast.world.model import RUNS_FOREVER, ProcessEnd, TimeSpan, ValidationEnd


class WorldOverride(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that differ from the usual ones; an empty name matches any."""

    node: str = ""
    workload: str = ""
    container: str = ""
    driver: str = ""
    pod: str = ""
    """The only condition for questions about pods."""
    first_attempts: int | None = None
    """Override only so many first attempts; None: all."""

    pull: TimeSpan | None = None
    init: ProcessEnd | None = None
    ready: TimeSpan | None = None
    run: ProcessEnd | None = None
    job: ProcessEnd | None = None
    stop: TimeSpan | None = None
    boot: TimeSpan | None = None

    unload: ProcessEnd | None = None
    load: ProcessEnd | None = None
    validation: ValidationEnd | None = None
    refusal: TimeSpan | None = None
    eviction: TimeSpan | None = None
    remainder: TimeSpan | None = None

    def matches(self, node: str, workload: str, container: str, attempt: int) -> bool:
        return (
            self.node in ("", node)
            and self.workload in ("", workload)
            and self.container in ("", container)
            and (self.first_attempts is None or attempt < self.first_attempts)
        )


class SteadyWorld(msgspec.Struct, frozen=True, kw_only=True):
    """The first matching override wins.

    With `jitter` each usual time grows by up to that share, differently for each question and seed.
    """

    seed: int = 0
    jitter: float = 0.0
    overrides: tuple[WorldOverride, ...] = ()

    pull_seconds: float = 2.0
    init_seconds: float = 1.0
    ready_seconds: float = 1.0
    job_seconds: float = 60.0
    stop_seconds: float = 1.0
    boot_seconds: float = 90.0
    unload_seconds: float = 3.0
    load_seconds: float = 20.0
    validation_seconds: float = 10.0

    def pull(self, node: str, workload: str, container: str) -> TimeSpan:
        for odd in self._odd(node, workload, container, 0):
            if odd.pull is not None:
                return odd.pull
        return TimeSpan(self._usual(self.pull_seconds, "pull", node, workload, container))

    def init(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        for odd in self._odd(node, workload, container, attempt):
            if odd.init is not None:
                return odd.init
        return ProcessEnd(
            self._usual(self.init_seconds, "init", node, workload, container, attempt)
        )

    def ready(self, node: str, workload: str, container: str, attempt: int) -> TimeSpan:
        for odd in self._odd(node, workload, container, attempt):
            if odd.ready is not None:
                return odd.ready
        return TimeSpan(
            self._usual(self.ready_seconds, "ready", node, workload, container, attempt)
        )

    def run(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        for odd in self._odd(node, workload, container, attempt):
            if odd.run is not None:
                return odd.run
        return RUNS_FOREVER

    def job(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        for odd in self._odd(node, workload, container, attempt):
            if odd.job is not None:
                return odd.job
        return ProcessEnd(self._usual(self.job_seconds, "job", node, workload, container, attempt))

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:
        for odd in self._odd(node, workload, container, 0):
            if odd.stop is not None:
                return odd.stop
        return TimeSpan(self._usual(self.stop_seconds, "stop", node, workload, container))

    def boot(self, node: str, attempt: int) -> TimeSpan:
        for odd in self._odd(node, "", "", attempt):
            if odd.boot is not None:
                return odd.boot
        return TimeSpan(self._usual(self.boot_seconds, "boot", node, attempt))

    def unload(self, node: str, attempt: int) -> ProcessEnd:
        for odd in self._odd(node, "", "", attempt):
            if odd.unload is not None:
                return odd.unload
        return ProcessEnd(self._usual(self.unload_seconds, "unload", node, attempt))

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        for odd in self._odd(node, "", "", attempt):
            if odd.load is not None and odd.driver in ("", driver):
                return odd.load
        return ProcessEnd(self._usual(self.load_seconds, "load", node, driver, attempt))

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        for odd in self._odd(node, "", "", attempt):
            if odd.validation is not None and odd.driver in ("", driver):
                return odd.validation
        return ValidationEnd(
            self._usual(self.validation_seconds, "validation", node, driver, attempt)
        )

    def refusal(self, pod: str) -> TimeSpan:
        for odd in self.overrides:
            if odd.refusal is not None and odd.pod in ("", pod):
                return odd.refusal
        return TimeSpan(0.0)

    def eviction(self, pod: str, grace: float) -> TimeSpan:
        for odd in self.overrides:
            if odd.eviction is not None and odd.pod in ("", pod):
                return odd.eviction
        return TimeSpan(min(grace, self._usual(self.stop_seconds, "eviction", pod)))

    def remainder(self, pod: str, age: float) -> TimeSpan:
        for odd in self.overrides:
            if odd.remainder is not None and odd.pod in ("", pod):
                return odd.remainder
        return TimeSpan(max(0.0, self._usual(self.job_seconds, "remainder", pod) - age))

    def _odd(self, node: str, workload: str, container: str, attempt: int) -> list[WorldOverride]:
        return [odd for odd in self.overrides if odd.matches(node, workload, container, attempt)]

    def _usual(self, seconds: float, *question: object) -> float:
        if not self.jitter:
            return seconds
        asked = "/".join(map(str, (self.seed, *question)))
        digest = hashlib.blake2b(asked.encode(), digest_size=8).digest()
        return seconds * (1.0 + self.jitter * int.from_bytes(digest) / 2**64)
