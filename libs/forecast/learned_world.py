"""A seeded world that takes the time that the fleet itself took, where that was measured.

What goes wrong, and how often, is assumed as in any seeded world.
"""

from msgspec.structs import replace

from libs.forecast.history import History, history_of
from libs.forecast.job_lengths import NO_JOBS, LearnedJobs
from libs.forecast.seeded_world import FleetProfile, SeededWorld
from libs.forecast.stage.driver_pods import CONTAINER
from libs.forecast.stage.state import Latencies
from libs.forecast.world import ProcessEnd, TimeSpan, ValidationEnd
from libs.rollout.views.fleet import Fleet

_USUAL = Latencies()
_EMPTYING = 4 * _USUAL.write + _USUAL.slot_poke + _USUAL.device_close
"""Seconds in which the devices of a node without pods are released."""
_RESTARTING = _USUAL.daemon_set + 2 * _USUAL.kubelet + _USUAL.write + _USUAL.slot_poke
"""Seconds of a restart in which nothing of the driver runs, ends or loads."""
_VALIDATING = 5 * _USUAL.write + 2 * _USUAL.slot_poke
_ENDING = FleetProfile().stop.median + FleetProfile().unload.median
_AT_ONCE = TimeSpan(0.0)
_SHORTEST = 0.5


_ASSUMED_NODES = 10
"""How many nodes an assumed rate counts for, beside those that were seen."""


_ASSUMED_JOBS = 10
"""The same of jobs."""


def _refused_share(history: History, assumed: float) -> float:
    """Return the share of evictions that are refused at first, as seen and as assumed."""
    seen = history.refused + assumed * _ASSUMED_NODES
    return seen / (history.emptied + _ASSUMED_NODES)


def _endless_share(jobs: LearnedJobs, assumed: float) -> float:
    """Return the share of jobs that never end, of which none was seen among those that did."""
    return assumed * _ASSUMED_JOBS / (jobs.jobs + _ASSUMED_JOBS)


def fleet_history(fleet: Fleet, pool: str) -> History:
    """Return what the upgrades of a pool's nodes took."""
    return history_of(fleet, pool, evicting_longer_than=_EMPTYING + _SHORTEST)


class LearnedWorld(SeededWorld):
    """The fleet of one seed, with its history.

    A restart was measured as a whole. It is played as a load of the driver, from which the pull of
    its image is taken off unless images are brought before.
    """

    def __init__(
        self,
        seed: int,
        *,
        history: History,
        jobs: LearnedJobs = NO_JOBS,
        brings_images: bool = False,
        profile: FleetProfile = FleetProfile(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(
            seed,
            profile=replace(
                profile,
                eviction_refused=_refused_share(history, profile.eviction_refused),
                job_endless=_endless_share(jobs, profile.job_endless),
            ),
        )
        self._history = history
        self._jobs = jobs
        self._brings_images = brings_images

    def pull(self, node: str, workload: str, container: str) -> TimeSpan:
        usual = self._pull(node, workload, container)
        restart = self._restart(node, workload)
        if restart is None or self._brings_images or usual.seconds is None:
            return usual
        return TimeSpan(min(usual.seconds, restart / 2))

    def _pull(self, node: str, workload: str, container: str) -> TimeSpan:
        usual, measured = super().pull(node, workload, container), self._history.pull
        if measured is None or usual.seconds is None:
            return usual
        _, quantile = self._draw(f"pull\n{node}\n{workload}\n{container}")
        return TimeSpan(measured.of_node(node, quantile))

    def ready(self, node: str, workload: str, container: str, attempt: int) -> TimeSpan:
        usual = super().ready(node, workload, container, attempt)
        return usual if self._history.restart is None else _AT_ONCE

    def stop(self, node: str, workload: str, container: str) -> TimeSpan:
        usual = super().stop(node, workload, container)
        return usual if self._history.restart is None else _AT_ONCE

    def unload(self, node: str, attempt: int) -> ProcessEnd:
        end = super().unload(node, attempt)
        if self._history.restart is None or end.after is None or end.exit_code:
            return end
        return ProcessEnd(0.0)

    def load(self, node: str, driver: str, attempt: int) -> ProcessEnd:
        end = super().load(node, driver, attempt)
        restart = self._restart(node, driver)
        if restart is None or end.after is None or end.exit_code:
            return end
        pulled = 0.0 if self._brings_images else self.pull(node, driver, CONTAINER).seconds or 0.0
        return ProcessEnd(max(_SHORTEST, restart - pulled - _RESTARTING))

    def validation(self, node: str, driver: str, attempt: int) -> ValidationEnd:
        end = super().validation(node, driver, attempt)
        measured = self._history.validation
        if measured is None or end.after is None or end.failed:
            return end
        _, quantile = self._draw(f"validation\n{node}\n{driver}\n{attempt}")
        return ValidationEnd(max(_SHORTEST, measured.of_node(node, quantile) - _VALIDATING))

    def eviction(self, pod: str, grace: float) -> TimeSpan:
        usual = super().eviction(pod, grace)
        measured = self._history.eviction
        if measured is None or usual.seconds is None:
            return usual
        _, quantile = self._draw(f"eviction\n{pod}")
        return TimeSpan(min(grace, max(_SHORTEST, measured.quantile(quantile) - _EMPTYING)))

    def remainder(self, pod: str, age: float, kind: str = "") -> TimeSpan:
        return self._job_span(pod, lambda share: self._jobs.left(kind, age, share))

    def _restart(self, node: str, driver: str) -> float | None:
        measured = self._history.restart
        if measured is None:
            return None
        _, quantile = self._draw(f"restart\n{node}\n{driver}")
        return measured.of_node(node, quantile) - self._shorter(node)

    def _shorter(self, node: str) -> float:
        """Return by how much the restart is shorter than a bring-up: it ends a driver in place of
        a pull, and takes no longer.
        """
        pull = self._history.pull
        if not (self._history.brought_up and self._brings_images) or pull is None:
            return 0.0
        return max(0.0, pull.of_node(node, 0.5) - _ENDING)
