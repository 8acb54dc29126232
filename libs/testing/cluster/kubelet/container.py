"""Simulated containers, their processes, and the status of their pod.

For a container with a process, the process decides when it is ready and how it ends; the world's
model gives only the duration of the start. Without a process, the model decides everything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

import msgspec

from libs.kube.views import format_time
from libs.policy.images import is_image_path
from libs.testing.cluster.views import Pod


class ContainerInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One start of one container."""

    node: str
    boot_id: str
    pod: Pod
    container: str
    container_id: str
    attempt: int


class ProcessEvents(Protocol):
    """The events that a process reports to its kubelet; ignored after the container's end."""

    def ready(self, ready: bool) -> None:
        """Set the result of the readiness probe."""
        ...

    def wrote(self, line: str) -> None:
        """Add a line to the container's log."""
        ...

    def exit(self, code: int) -> None:
        """Report that the process has ended by itself."""
        ...


class ContainerProcess(Protocol):
    """A process in a container. The methods return at once; work runs in tasks."""

    def begin(self, instance: ContainerInstance, events: ProcessEvents, /) -> None:
        """Handle the start of the container."""
        ...

    def stop(self, instance: ContainerInstance) -> None:
        """Terminate; the process is killed at the end of the grace period."""
        ...

    def end(self, instance: ContainerInstance) -> None:
        """Handle the end of the container: exited, killed, or lost with its machine."""
        ...


ProcessFactory = Callable[[Pod, str], ContainerProcess | None]
"""Creates the process for a pod's container of that name; None leaves it to the model."""


def no_process(_pod: Pod, _container: str) -> None:
    pass


FIRST_BACKOFF = 10.0
LONGEST_BACKOFF = 300.0
FORGIVEN_AFTER = 600.0
"""Seconds of running after which the back-off starts over."""

MESSAGE_LINES = 80
MESSAGE_BYTES = 2048
"""How much of a log the kubelet keeps as a termination message."""

KILLED = 137
LOST = 255
"""Exit codes of a killed container, and of a container on a machine that lost power."""


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
    ended_at: float
    message: str = ""

    def as_status(self) -> dict[str, Any]:
        """Return the exit in the form of `state` and `lastState`."""
        reason = {0: "Completed", LOST: "Unknown"}.get(self.code, "Error")
        message = {"message": self.message} if self.message else {}
        return {
            "terminated": {
                "exitCode": self.code,
                "reason": reason,
                **message,
                "startedAt": format_time(self.started_at),
                "finishedAt": format_time(self.ended_at),
                "containerID": self.container_id,
            }
        }


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedContainer:
    """A container; `due` is when it starts or ends by itself."""

    name: str
    image: str
    init: bool
    tells_log: bool = False
    """Whether its log stands for a termination message (`FallbackToLogsOnError`)."""
    log: list[str] = field(default_factory=list[str])
    """The lines that its process wrote in this run."""
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
    """Consecutive failures, for the back-off."""
    last: ContainerExit | None = None

    @property
    def refusal(self) -> str:
        """Why its image is never pulled; empty: it may be."""
        if not self.image or is_image_path(self.image):
            return ""
        return f"couldn't parse image name {self.image!r}: invalid reference format"

    @property
    def next(self) -> float | None:
        """The time of the next event that happens by itself."""
        times = [time for time in (self.due, self.ready_due) if time is not None]
        return min(times, default=None)

    @property
    def done(self) -> bool:
        """Whether the container has ended successfully and is not restarted."""
        return self.state is ContainerPhase.ENDED and self.last is not None and self.last.code == 0

    def termination_message(self, code: int) -> str:
        """Return the end of the log, as the kubelet keeps it of a container that failed."""
        if not self.tells_log or not code:
            return ""
        text = "".join(f"{line}\n" for line in self.log[-MESSAGE_LINES:]).encode()
        return text[-MESSAGE_BYTES:].decode(errors="replace")

    def backoff(self, time: float) -> float:
        """Return the delay until the next start; none after the first failure."""
        if time - self.started_at >= FORGIVEN_AFTER:
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
        if self.state is ContainerPhase.CREATING and self.refusal:
            return {"waiting": {"reason": "InvalidImageName", "message": self.refusal}}
        return {"waiting": {"reason": waiting}}


def pod_phase(containers: Sequence[SimulatedContainer]) -> str:
    """Return the pod's phase, derived from its containers."""
    init_containers = [container for container in containers if container.init]
    if any(
        container.state is ContainerPhase.ENDED and not container.done
        for container in init_containers
    ):
        return "Failed"
    if not all(container.done for container in init_containers):
        return "Pending"
    main_containers = [container for container in containers if not container.init]
    if all(container.state is ContainerPhase.ENDED for container in main_containers):
        return "Succeeded" if all(container.done for container in main_containers) else "Failed"
    not_started = (ContainerPhase.WAITING, ContainerPhase.CREATING)
    if any(
        container.state in not_started and container.last is None for container in main_containers
    ):
        return "Pending"
    return "Running"


class PodStatusBuilder:
    """Builds statuses; remembers the transition time of each condition."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, float]] = {}

    def build(
        self,
        containers: Sequence[SimulatedContainer],
        *,
        since: float,
        now: float,
        host_ip: str,
        pod_ip: str,
    ) -> dict[str, Any]:
        """Return the kubelet's part of the pod's status."""
        init_containers = [container for container in containers if container.init]
        main_containers = [container for container in containers if not container.init]
        phase = pod_phase(containers)
        initialized = all(container.done for container in init_containers)
        ready = (
            bool(main_containers)
            and all(container.ready for container in main_containers)
            and initialized
        )
        reason = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
        started = any(
            container.last or container.state is ContainerPhase.RUNNING for container in containers
        )
        waiting = "PodInitializing" if init_containers else "ContainerCreating"
        status: dict[str, Any] = {
            "phase": phase,
            "startTime": format_time(since),
            "hostIP": host_ip,
            "hostIPs": [{"ip": host_ip}],
            "conditions": [
                self._condition("PodReadyToStartContainers", started, now, ""),
                self._condition("Initialized", initialized, now, "ContainersNotInitialized"),
                self._condition("Ready", ready, now, reason),
                self._condition("ContainersReady", ready, now, reason),
            ],
            "containerStatuses": [
                container.as_status(waiting=waiting) for container in main_containers
            ],
        }
        if init_containers:
            status["initContainerStatuses"] = [
                container.as_status(waiting=waiting) for container in init_containers
            ]
        if started:
            status |= {"podIP": pod_ip, "podIPs": [{"ip": pod_ip}]}
        return status

    def _condition(self, kind: str, is_true: bool, now: float, reason: str) -> dict[str, Any]:
        value = "True" if is_true else "False"
        before = self._since.get(kind)
        if before is None or before[0] != value:
            before = self._since[kind] = (value, now)
        return {
            "type": kind,
            "status": value,
            "lastTransitionTime": format_time(before[1]),
            "reason": None if is_true or not reason else reason,
        }
