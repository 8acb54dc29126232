"""A world in which everything works and takes its usual time, except for overrides. For tests."""

import hashlib
from collections.abc import Mapping
from typing import Any

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

    def matches(self, attempt: int, names: Mapping[str, str]) -> bool:
        in_time = self.first_attempts is None or attempt < self.first_attempts
        return in_time and all(getattr(self, key) in ("", name) for key, name in names.items())


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
        override = self._override("pull", 0, node=node, workload=workload, container=container)
        return override or TimeSpan(
            self._usual(self.pull_seconds, "pull", node, workload, container)
        )

    def init(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        override = self._override(
            "init", attempt, node=node, workload=workload, container=container
        )
        return override or ProcessEnd(
            self._usual(self.init_seconds, "init", node, workload, container, attempt)
        )

    def ready(self, node: str, workload: str, container: str, attempt: int) -> TimeSpan:
        override = self._override(
            "ready", attempt, node=node, workload=workload, container=container
        )
        return override or TimeSpan(
            self._usual(self.ready_seconds, "ready", node, workload, container, attempt)
        )

    def run(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        names = {"node": node, "workload": workload, "container": container}
        return self._override("run", attempt, **names) or RUNS_FOREVER

    def job(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        override = self._override("job", attempt, node=node, workload=workload, container=container)
        return override or ProcessEnd(
            self._usual(self.job_seconds, "job", node, workload, container, attempt)
        )

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:
        override = self._override("stop", 0, node=node, workload=workload, container=container)
        return override or TimeSpan(
            self._usual(self.stop_seconds, "stop", node, workload, container)
        )

    def boot(self, node: str, attempt: int) -> TimeSpan:
        override = self._override("boot", attempt, node=node, workload="", container="")
        return override or TimeSpan(self._usual(self.boot_seconds, "boot", node, attempt))

    def unload(self, node: str, attempt: int) -> ProcessEnd:
        override = self._override("unload", attempt, node=node, workload="", container="")
        return override or ProcessEnd(self._usual(self.unload_seconds, "unload", node, attempt))

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        names = {"node": node, "driver": driver, "workload": "", "container": ""}
        return self._override("load", attempt, **names) or ProcessEnd(
            self._usual(self.load_seconds, "load", node, driver, attempt)
        )

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        names = {"node": node, "driver": driver, "workload": "", "container": ""}
        return self._override("validation", attempt, **names) or ValidationEnd(
            self._usual(self.validation_seconds, "validation", node, driver, attempt)
        )

    def refusal(self, pod: str) -> TimeSpan:
        return self._override("refusal", 0, pod=pod) or TimeSpan(0.0)

    def eviction(self, pod: str, grace: float) -> TimeSpan:
        return self._override("eviction", 0, pod=pod) or TimeSpan(
            min(grace, self._usual(self.stop_seconds, "eviction", pod))
        )

    def remainder(self, pod: str, age: float) -> TimeSpan:
        return self._override("remainder", 0, pod=pod) or TimeSpan(
            max(0.0, self._usual(self.job_seconds, "remainder", pod) - age)
        )

    def _override(self, kind: str, attempt: int, **names: str) -> Any:
        """Return the first answer of this kind that an override has for these names."""
        for override in self.overrides:
            answer = getattr(override, kind)
            if answer is not None and override.matches(attempt, names):
                return answer
        return None

    def _usual(self, seconds: float, *question: object) -> float:
        if not self.jitter:
            return seconds
        text = "/".join(map(str, (self.seed, *question)))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return seconds * (1.0 + self.jitter * int.from_bytes(digest) / 2**64)
