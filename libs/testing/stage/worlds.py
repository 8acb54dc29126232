"""Worlds for simulations: one in which everything takes its usual time, and a seeded fleet.

Simulated machines need more of a world than an upgrade does: `MachineModel`.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from libs.forecast.seeded_world import FleetProfile, Lognormal, SeededWorld
from libs.forecast.world import (
    NEVER,
    RUNS_FOREVER,
    ProcessEnd,
    TimeSpan,
    ValidationEnd,
    WorldModel,
)


class MachineModel(WorldModel, Protocol):
    """The durations and outcomes of simulated machines, besides those of upgrades."""

    def init(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        """Return the end of an init container."""
        ...

    def job(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        """Return the end of a container that is meant to complete."""
        ...

    def boot(self, node: str, attempt: int) -> TimeSpan:
        """Return the time from a machine's shutdown until its kubelet posts status again."""
        ...


_BOOT = Lognormal(300.0, 1200.0)


class WorldOverride(msgspec.Struct, frozen=True, kw_only=True):
    """Durations and outcomes that replace the usual ones; an empty name matches any."""

    node: str = ""
    workload: str = ""
    container: str = ""
    driver: str = ""
    pod: str = ""
    """The only condition for durations of pods."""
    first_attempts: int | None = None
    """The number of first attempts to override; None means all."""

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

    With `jitter` each usual time grows by up to that share, by event and seed.
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
        return self._time_span("pull", node=node, workload=workload, container=container)

    def init(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        return self._process_end("init", attempt, node=node, workload=workload, container=container)

    def ready(self, node: str, workload: str, container: str, attempt: int) -> TimeSpan:
        return self._time_span("ready", attempt, node=node, workload=workload, container=container)

    def run(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        names = {"node": node, "workload": workload, "container": container}
        return self._override("run", attempt, names) or RUNS_FOREVER

    def job(self, node: str, workload: str, container: str, attempt: int) -> ProcessEnd:
        return self._process_end("job", attempt, node=node, workload=workload, container=container)

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:
        return self._time_span("stop", node=node, workload=workload, container=container)

    def boot(self, node: str, attempt: int) -> TimeSpan:
        return self._time_span("boot", attempt, node=node, workload="", container="")

    def unload(self, node: str, attempt: int) -> ProcessEnd:
        return self._process_end("unload", attempt, node=node, workload="", container="")

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        return self._process_end(
            "load", attempt, node=node, driver=driver, workload="", container=""
        )

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        names = {"node": node, "driver": driver, "workload": "", "container": ""}
        return self._override("validation", attempt, names) or ValidationEnd(
            self._usual("validation", self.validation_seconds, node, driver, attempt)
        )

    def refusal(self, pod: str) -> TimeSpan:
        return self._override("refusal", 0, {"pod": pod}) or TimeSpan(0.0)

    def eviction(self, pod: str, grace: float) -> TimeSpan:
        usual = self._usual("eviction", self.stop_seconds, pod)
        return self._override("eviction", 0, {"pod": pod}) or TimeSpan(min(grace, usual))

    def remainder(self, pod: str, age: float, kind: str = "") -> TimeSpan:  # noqa: ARG002
        usual = self._usual("remainder", self.job_seconds, pod)
        return self._override("remainder", 0, {"pod": pod}) or TimeSpan(max(0.0, usual - age))

    def _time_span(self, kind: str, attempt: int | None = None, **names: str) -> TimeSpan:
        override = self._override(kind, attempt or 0, names)
        return override or TimeSpan(self._usual_of(kind, attempt, names))

    def _process_end(self, kind: str, attempt: int, **names: str) -> ProcessEnd:
        override = self._override(kind, attempt, names)
        return override or ProcessEnd(self._usual_of(kind, attempt, names))

    def _override(self, kind: str, attempt: int, names: Mapping[str, str]) -> Any:
        """Return the value of the first override for these names."""
        for override in self.overrides:
            answer = getattr(override, kind)
            if answer is not None and override.matches(attempt, names):
                return answer
        return None

    def _usual_of(self, kind: str, attempt: int | None, names: Mapping[str, str]) -> float:
        question = (*filter(None, names.values()), *(() if attempt is None else (attempt,)))
        return self._usual(kind, getattr(self, f"{kind}_seconds"), *question)

    def _usual(self, kind: str, seconds: float, *question: object) -> float:
        if not self.jitter:
            return seconds
        text = "/".join(map(str, (self.seed, kind, *question)))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return seconds * (1.0 + self.jitter * int.from_bytes(digest) / 2**64)


class SeededFleet(SeededWorld):
    """A seeded world whose machines reboot.

    A driver in `bad_drivers` never loads on any node; one in `unsound_drivers` loads but never
    passes a validation. Drivers are named by label or by target. `missing_images` is the share of
    images that cannot be pulled to a node.
    """

    def __init__(
        self,
        seed: int,
        *,
        profile: FleetProfile = FleetProfile(),  # noqa: B008 - frozen
        never_boots: float = 0.002,
        bad_drivers: frozenset[str] = frozenset(),
        unsound_drivers: frozenset[str] = frozenset(),
        missing_images: float = 0.0,
    ) -> None:
        super().__init__(seed, profile=profile)
        self._never_boots = never_boots
        self._bad_drivers = bad_drivers
        self._unsound_drivers = unsound_drivers
        self._missing_images = missing_images

    def boot(self, node: str, attempt: int) -> TimeSpan:
        chance, quantile = self._draw(f"boot\n{node}\n{attempt}")
        return NEVER if chance < self._never_boots else TimeSpan(_BOOT.milliseconds(quantile))

    def pull(self, node: str, workload: str, container: str) -> TimeSpan:
        if self._missing_images:
            chance, _ = self._draw(f"missing\n{node}\n{workload}\n{container}")
            if chance < self._missing_images:
                return NEVER
        return super().pull(node, workload, container)

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        if driver not in self._bad_drivers:
            return super().load(node, driver, attempt)
        _, quantile = self._draw(f"load\n{node}\n{driver}\n{attempt}")
        return ProcessEnd(self._profile.failing.milliseconds(quantile), 1)

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        if driver not in self._unsound_drivers:
            return super().validation(node, driver, attempt)
        _, quantile = self._draw(f"validation\n{node}\n{driver}\n{attempt}")
        return ValidationEnd(self._profile.failing.milliseconds(quantile), "cuda")
