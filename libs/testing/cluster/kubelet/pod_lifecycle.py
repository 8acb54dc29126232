"""The lifecycle of one pod on one machine: containers start, get ready, fail, restart and stop.

The caller drives it: `advance(now)` handles all due events, `next` is the next due time,
`status` is the status to write to the API server. Durations come from the world's model.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from libs.forecast.world import ProcessEnd
from libs.runtime.clock import Clock
from libs.runtime.env import Ids
from libs.testing.cluster.kubelet.container import (
    KILLED,
    LOST,
    ContainerExit,
    ContainerInstance,
    ContainerPhase,
    PodStatusBuilder,
    ProcessFactory,
    SimulatedContainer,
    pod_phase,
)
from libs.testing.cluster.views import Pod
from libs.testing.stage.worlds import MachineModel


@dataclass(slots=True, kw_only=True)
class PodHost:
    """The state that the pods of one machine share."""

    node: str
    ip: str
    addresses: Iterator[str]
    """IP addresses for pods, one for each."""
    boot_id: str
    model: MachineModel
    clock: Clock
    ids: Ids
    processes: ProcessFactory
    back_off: float = 1.0
    """The back-off between restarts, as a multiple of the usual one."""
    starts: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """Number of starts so far, by workload and container."""

    def attempt(self, workload: str, container: str) -> int:
        """Count a start; return its number, from 0 on."""
        key = (workload, container)
        self.starts[key] = attempt = self.starts.get(key, -1) + 1
        return attempt


class PodLifecycle:
    """One pod, by uid; `on_change` is called when a process reports something."""

    __slots__ = (
        "_host",
        "_ip",
        "_on_change",
        "_revision",
        "_status_builder",
        "containers",
        "pod",
        "since",
        "stopping",
        "workload",
        "written",
    )

    def __init__(self, pod: Pod, *, host: PodHost, now: float, on_change: Callable[[], None]):
        self.pod = pod
        owner = pod.metadata.owner
        self.workload = owner.name if owner else pod.metadata.name
        self.since = now
        self.stopping = False
        self.written: dict[str, Any] | None = None
        """The status that was last written."""
        self.containers = [
            SimulatedContainer(
                name=each.name,
                image=each.image,
                init=init,
                tells_log=each.termination_message_policy == "FallbackToLogsOnError",
            )
            for init, group in ((True, pod.spec.init_containers), (False, pod.spec.containers))
            for each in group
        ]
        self._revision = 0
        """resourceVersion of the last written status; older updates are ignored."""
        self._host = host
        self._ip = next(host.addresses)
        self._on_change = on_change
        self._status_builder = PodStatusBuilder()
        self._start_next(now)

    @property
    def next(self) -> float | None:
        """The time of the next event that happens by itself."""
        times = [container.next for container in self.containers]
        return min((time for time in times if time is not None), default=None)

    @property
    def gone(self) -> bool:
        """Whether the pod is stopping and no container runs any more."""
        return self.stopping and all(
            container.state is not ContainerPhase.RUNNING for container in self.containers
        )

    @property
    def over(self) -> bool:
        """Whether the containers have ended for good."""
        return pod_phase(self.containers) in ("Succeeded", "Failed")

    def advance(self, now: float) -> None:
        """Handle all events that are due by now, in order of time."""
        while (time := self.next) is not None and time <= now:
            for container in self.containers:
                if container.next == time:
                    self._handle_event(container, time)

    def stop(self, now: float, *, grace: float) -> None:
        """Terminate the containers within the grace period."""
        first, self.stopping = not self.stopping, True
        for container in self.containers:
            if container.state is ContainerPhase.RUNNING:
                self._stop(container, now, grace=grace, first=first)
            else:
                container.due = container.ready_due = None

    def kill(self, now: float) -> None:
        """End everything at once: the machine lost power, or the pod was deleted."""
        for container in self.containers:
            if container.state is ContainerPhase.ENDED:
                continue
            if container.state is ContainerPhase.RUNNING:
                self._record_exit(container, now, LOST)
            container.state, container.due = ContainerPhase.WAITING, None

    def restart(self, now: float) -> None:
        """Restart the unfinished containers after a boot, from the first init container."""
        if self.over or self.stopping:
            return
        never = self.pod.spec.restart_policy == "Never"
        for container in self.containers:
            finished = never and container.last is not None
            if finished or (container.state is ContainerPhase.ENDED and not container.init):
                container.state = ContainerPhase.ENDED
            else:
                container.state, container.failures = ContainerPhase.WAITING, 0
        self._start_next(now)

    def _handle_event(self, container: SimulatedContainer, time: float) -> None:
        if container.state in (ContainerPhase.CREATING, ContainerPhase.BACKING_OFF):
            self._start(container, time)
        elif container.ready_due == time:
            container.ready, container.ready_due = True, None
        else:
            self._handle_exit(container, time, container.code)

    def _start_next(self, time: float) -> None:
        """Start the next init container, or all main containers."""
        remaining = [
            container
            for container in self.containers
            if container.state is not ContainerPhase.ENDED
        ]
        inits = [container for container in remaining if container.init]
        for container in inits[:1] or remaining:
            if container.refusal:
                container.state, container.due = ContainerPhase.CREATING, None
                continue
            pull = 0.0
            if container.last is None:
                span = self._host.model.pull(self._host.node, self.workload, container.name)
                pull = span.seconds
            container.state = ContainerPhase.CREATING
            container.due = None if pull is None else time + pull

    def _start(self, container: SimulatedContainer, time: float) -> None:
        host = self._host
        attempt = host.attempt(self.workload, container.name)
        if container.last is not None:
            container.restarts += 1
        container.state, container.started_at, container.due, container.ready = (
            ContainerPhase.RUNNING,
            time,
            None,
            False,
        )
        container.instance = ContainerInstance(
            node=host.node,
            boot_id=host.boot_id,
            pod=self.pod,
            container=container.name,
            container_id=f"containerd://{host.ids.new():0<64}",
            attempt=attempt,
        )
        container.log.clear()
        container.process = host.processes(self.pod, container.name)
        if container.process is not None:
            container.process.begin(
                container.instance,
                _ContainerEvents(self, container, container.instance.container_id),
            )
            return
        key = (host.node, self.workload, container.name, attempt)
        ending = self._ending(container, key)
        container.due = None if ending.after is None else time + ending.after
        container.code = ending.exit_code
        if not container.init:
            ready = host.model.ready(*key).seconds
            container.ready_due = None if ready is None else time + ready

    def _ending(self, container: SimulatedContainer, key: tuple[str, str, str, int]) -> ProcessEnd:
        model = self._host.model
        if container.init:
            return model.init(*key)
        return model.run(*key) if self.pod.spec.restart_policy == "Always" else model.job(*key)

    def _stop(
        self, container: SimulatedContainer, now: float, *, grace: float, first: bool
    ) -> None:
        container.ready_due = None
        if container.process is not None:
            if first and container.instance is not None:
                container.process.stop(container.instance)
            duration = None
        else:
            duration = self._host.model.stop(self._host.node, self.workload, container.name).seconds
        in_time = duration is not None and duration <= grace
        end = now + (duration if in_time and duration is not None else grace)
        if container.due is None or end < container.due:
            container.due, container.code = end, 0 if in_time else KILLED

    def _handle_exit(self, container: SimulatedContainer, time: float, code: int) -> None:
        self._record_exit(container, time, code)
        policy = self.pod.spec.restart_policy
        restarts_again = code != 0 if container.init or policy == "OnFailure" else True
        if self.stopping or policy == "Never":
            restarts_again = False
        if restarts_again:
            container.state, container.due = (
                ContainerPhase.BACKING_OFF,
                time + self._host.back_off * container.backoff(time),
            )
        elif container.init and code == 0 and not self.stopping:
            self._start_next(time)

    def _record_exit(self, container: SimulatedContainer, time: float, code: int) -> None:
        instance, process = container.instance, container.process
        assert instance is not None  # noqa: S101  (called for running containers only)
        container.last = ContainerExit(
            container_id=instance.container_id,
            code=code,
            started_at=container.started_at,
            ended_at=time,
            message=container.termination_message(code),
        )
        container.state, container.due, container.ready_due, container.ready = (
            ContainerPhase.ENDED,
            None,
            None,
            False,
        )
        container.instance = container.process = None
        if process is not None:
            process.end(instance)

    def status(self, now: float) -> dict[str, Any]:
        """Return the kubelet's part of the pod's status."""
        return self._status_builder.build(
            self.containers, since=self.since, now=now, host_ip=self._host.ip, pod_ip=self._ip
        )

    def status_written(self, status: dict[str, Any], written_pod: Pod) -> None:
        """Record a status that the server has accepted."""
        self.written = status
        self._revision = int(written_pod.metadata.resource_version)
        self.pod_updated(self.pod)

    def pod_updated(self, pod: Pod) -> None:
        """Update the pod; write the status again if our Ready condition was overwritten."""
        self.pod = pod
        if self.written is None or int(pod.metadata.resource_version) <= self._revision:
            return
        own = {each["type"]: each["status"] for each in self.written["conditions"]}
        current = pod.condition("Ready")
        if current is None or current.status != own["Ready"]:
            self.written = None

    def process_ready(self, container: SimulatedContainer, container_id: str, ready: bool) -> None:
        if container.instance is not None and container.instance.container_id == container_id:
            container.ready = ready and not container.init
            self._on_change()

    def process_wrote(self, container: SimulatedContainer, container_id: str, line: str) -> None:
        if container.instance is not None and container.instance.container_id == container_id:
            container.log.append(line)

    def process_exited(self, container: SimulatedContainer, container_id: str, code: int) -> None:
        """Record the exit; the next `advance` handles it."""
        if container.instance is not None and container.instance.container_id == container_id:
            container.due, container.code = self._host.clock.now(), code
            self._on_change()


class _ContainerEvents:
    __slots__ = ("_container", "_container_id", "_lifecycle")

    def __init__(
        self, lifecycle: PodLifecycle, container: SimulatedContainer, container_id: str
    ) -> None:
        self._lifecycle = lifecycle
        self._container = container
        self._container_id = container_id

    def ready(self, ready: bool) -> None:
        self._lifecycle.process_ready(self._container, self._container_id, ready)

    def wrote(self, line: str) -> None:
        self._lifecycle.process_wrote(self._container, self._container_id, line)

    def exit(self, code: int) -> None:
        self._lifecycle.process_exited(self._container, self._container_id, code)
