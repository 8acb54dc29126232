"""One container of a pod: its phase, exits and restarts."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from libs.kube.views import format_time
from libs.testing.cluster.kubelet.container_process import ContainerInstance, ContainerProcess

FIRST_BACKOFF = 10.0
LONGEST_BACKOFF = 300.0
FORGIVEN_AFTER = 600.0
"""Seconds of running after which the back-off starts over."""

KILLED = 137
LOST = 255
"""Exit codes of a killed container, and of one whose machine went down."""


class ContainerPhase(Enum):
    WAITING = auto()
    """Earlier init containers have not finished."""
    CREATING = auto()
    RUNNING = auto()
    BACKING_OFF = auto()
    ENDED = auto()
    """Will not start again."""


@dataclass(slots=True, kw_only=True)
class ContainerExit:
    """The end of one container instance."""

    container_id: str
    code: int
    started_at: float
    at: float

    def as_status(self) -> dict[str, Any]:
        """Return it in the form of `state` and `lastState`."""
        reason = {0: "Completed", LOST: "Unknown"}.get(self.code, "Error")
        return {
            "terminated": {
                "exitCode": self.code,
                "reason": reason,
                "startedAt": format_time(self.started_at),
                "finishedAt": format_time(self.at),
                "containerID": self.container_id,
            }
        }


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedContainer:
    """A container; `due` is when it starts or ends by itself."""

    name: str
    image: str
    init: bool
    state: ContainerPhase = ContainerPhase.WAITING
    due: float | None = None
    ready_due: float | None = None
    ready: bool = False
    code: int = 0  # exit code at `due`
    started_at: float = 0.0
    instance: ContainerInstance | None = None
    process: ContainerProcess | None = None
    restarts: int = 0
    failures: int = 0
    """Consecutive, for the back-off."""
    last: ContainerExit | None = None

    @property
    def next(self) -> float | None:
        """The time of the next event that happens by itself."""
        times = [time for time in (self.due, self.ready_due) if time is not None]
        return min(times, default=None)

    @property
    def done(self) -> bool:
        """Whether it has ended successfully, for good."""
        return self.state is ContainerPhase.ENDED and self.last is not None and self.last.code == 0

    def backoff(self, at: float) -> float:
        """Return the delay until the next start; none after the first failure."""
        if at - self.started_at >= FORGIVEN_AFTER:
            self.failures = 0
        self.failures += 1
        if self.failures == 1:
            return 0.0
        return min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(self.failures - 2, 10))

    def as_status(self, *, waiting: str) -> dict[str, Any]:
        """Return the container status; `waiting` is the reason shown before the first start."""
        running = self.state is ContainerPhase.RUNNING
        current = self.instance.container_id if running and self.instance else ""
        container_id = current or (self.last.container_id if self.last else "")
        status: dict[str, Any] = {
            "name": self.name,
            "image": self.image,
            "imageID": f"{self.image}@sha256:sim" if container_id else "",
            "ready": self.done if self.init else self.ready,
            "restartCount": self.restarts,
            "started": running,
            "state": self._state_status(waiting),
            "lastState": {},
        }
        if container_id:
            status["containerID"] = container_id
        if self.last is not None and self.state is not ContainerPhase.ENDED:
            status["lastState"] = self.last.as_status()
        return status

    def _state_status(self, waiting: str) -> dict[str, Any]:
        if self.state is ContainerPhase.RUNNING:
            return {"running": {"startedAt": format_time(self.started_at)}}
        if self.state is ContainerPhase.ENDED and self.last is not None:
            return self.last.as_status()
        if self.state is ContainerPhase.BACKING_OFF:
            message = f"restarting failed container={self.name}"
            return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        return {"waiting": {"reason": waiting}}
