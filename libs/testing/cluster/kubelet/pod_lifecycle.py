"""The life of one pod on one machine: containers start, get ready, fail, start again, and stop.

Driven by whoever holds the time: `advance(now)` lets everything happen that was due until then,
`next` says when to come again, `status` is what the API server should be told. Must know nothing of
servers, and asks how long things take of the world's model.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from libs.forecast.world import ProcessEnd, WorldModel
from libs.runtime.clock import Clock
from libs.runtime.ids import Ids
from libs.testing.cluster.kubelet.container import (
    KILLED,
    LOST,
    ContainerExit,
    ContainerPhase,
    SimulatedContainer,
)
from libs.testing.cluster.kubelet.container_process import ContainerInstance, ProcessFactory
from libs.testing.cluster.kubelet.pod_status import PodStatusBuilder, pod_phase
from libs.testing.cluster.views import Pod


@dataclass(slots=True, kw_only=True)
class PodHost:
    """What the pods of one machine share."""

    node: str
    ip: str
    addresses: Iterator[str]
    """One for each pod."""
    boot_id: str
    model: WorldModel
    clock: Clock
    ids: Ids
    processes: ProcessFactory
    starts: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """By workload and container."""

    def attempt(self, workload: str, container: str) -> int:
        """Count one more start."""
        key = (workload, container)
        self.starts[key] = attempt = self.starts.get(key, -1) + 1
        return attempt


class PodLifecycle:
    """One pod, by uid; `stirred` is called when an occupant said something."""

    __slots__ = (
        "_ip",
        "_machine",
        "_revision",
        "_statement",
        "_stirred",
        "boxes",
        "pod",
        "since",
        "stopping",
        "workload",
        "written",
    )

    def __init__(self, pod: Pod, *, machine: PodHost, now: float, on_change: Callable[[], None]):
        self.pod = pod
        owner = pod.metadata.owner
        self.workload = owner.name if owner else pod.metadata.name
        self.since = now
        self.stopping = False
        self.written: dict[str, Any] | None = None
        """What the server was told last."""
        self.boxes = [
            *(
                SimulatedContainer(name=each.name, image=each.image, init=True)
                for each in pod.spec.init_containers
            ),
            *(
                SimulatedContainer(name=each.name, image=each.image, init=False)
                for each in pod.spec.containers
            ),
        ]
        self._revision = 0
        """Of the pod as the server answered last: what it says of older ones is no news."""
        self._machine = machine
        self._ip = next(machine.addresses)
        self._stirred = on_change
        self._statement = PodStatusBuilder()
        self._go_on(now)

    @property
    def next(self) -> float | None:
        """When something happens by itself."""
        times = [box.next for box in self.boxes]
        return min((time for time in times if time is not None), default=None)

    @property
    def gone(self) -> bool:
        """Whether it was told to stop, and nothing of it runs."""
        return self.stopping and all(box.state is not ContainerPhase.RUNNING for box in self.boxes)

    @property
    def over(self) -> bool:
        """Whether its containers have ended for good."""
        return pod_phase(self.boxes) in ("Succeeded", "Failed")

    # What happens to it.

    def advance(self, now: float) -> None:
        """Let everything happen that was due by now, each at its own time."""
        while (at := self.next) is not None and at <= now:
            for box in self.boxes:
                if box.next == at:
                    self._happen(box, at)

    def stop(self, now: float, *, grace: float) -> None:
        """Ask everything to end, and see that it has when the grace is over."""
        first, self.stopping = not self.stopping, True
        for box in self.boxes:
            if box.state is ContainerPhase.RUNNING:
                self._stop(box, now, grace=grace, first=first)
            else:
                box.due = box.ready_due = None

    def kill(self, now: float) -> None:
        """The machine is off, or the pod's object is: nothing runs any more, and nothing starts."""
        for box in self.boxes:
            if box.state is ContainerPhase.ENDED:
                continue
            if box.state is ContainerPhase.RUNNING:
                self._close(box, now, LOST)
            box.state, box.due = ContainerPhase.WAITING, None

    def restart(self, now: float) -> None:
        """The machine is up again: what had not ended for good begins anew, from the first init."""
        if self.over or self.stopping:
            return
        never = self.pod.spec.restart_policy == "Never"
        for box in self.boxes:
            spent = never and box.last is not None
            if spent or (box.state is ContainerPhase.ENDED and not box.init):
                box.state = ContainerPhase.ENDED
            else:
                box.state, box.failures = ContainerPhase.WAITING, 0
        self._go_on(now)

    def _happen(self, box: SimulatedContainer, at: float) -> None:
        if box.state in (ContainerPhase.CREATING, ContainerPhase.BACKING_OFF):
            self._start(box, at)
        elif box.ready_due == at:
            box.ready, box.ready_due = True, None
        else:
            self._ended(box, at, box.code)

    def _go_on(self, at: float) -> None:
        """Give the turn to the next init container, or to all the others."""
        left = [box for box in self.boxes if box.state is not ContainerPhase.ENDED]
        inits = [box for box in left if box.init]
        for box in inits[:1] or left:
            pull = 0.0
            if box.last is None:
                span = self._machine.model.pull(self._machine.node, self.workload, box.name)
                pull = span.seconds
            box.state = ContainerPhase.CREATING
            box.due = None if pull is None else at + pull

    def _start(self, box: SimulatedContainer, at: float) -> None:
        machine = self._machine
        attempt = machine.attempt(self.workload, box.name)
        if box.last is not None:
            box.restarts += 1
        box.state, box.started_at, box.due, box.ready = ContainerPhase.RUNNING, at, None, False
        box.instance = ContainerInstance(
            node=machine.node,
            boot_id=machine.boot_id,
            pod=self.pod,
            container=box.name,
            container_id=f"containerd://{machine.ids.new()}",
            attempt=attempt,
        )
        box.process = machine.processes(self.pod, box.name)
        if box.process is not None:
            box.process.begin(box.instance, _Voice(self, box, box.instance.container_id))
            return
        who = (machine.node, self.workload, box.name, attempt)
        ending = self._ending(box, who)
        box.due = None if ending.after is None else at + ending.after
        box.code = ending.exit_code
        if not box.init:
            ready = machine.model.ready(*who).seconds
            box.ready_due = None if ready is None else at + ready

    def _ending(self, box: SimulatedContainer, who: tuple[str, str, str, int]) -> ProcessEnd:
        model = self._machine.model
        if box.init:
            return model.init(*who)
        return model.run(*who) if self.pod.spec.restart_policy == "Always" else model.job(*who)

    def _stop(self, box: SimulatedContainer, now: float, *, grace: float, first: bool) -> None:
        box.ready_due = None
        if box.process is not None:
            if first and box.instance is not None:
                box.process.stop(box.instance)
            takes = None
        else:
            takes = self._machine.model.stop(self._machine.node, self.workload, box.name).seconds
        in_time = takes is not None and takes <= grace
        end = now + (takes if in_time and takes is not None else grace)
        if box.due is None or end < box.due:
            box.due, box.code = end, 0 if in_time else KILLED

    def _ended(self, box: SimulatedContainer, at: float, code: int) -> None:
        self._close(box, at, code)
        policy = self.pod.spec.restart_policy
        again = code != 0 if box.init or policy == "OnFailure" else True
        if self.stopping or policy == "Never":
            again = False
        if again:
            box.state, box.due = ContainerPhase.BACKING_OFF, at + box.backoff(at)
        elif box.init and code == 0 and not self.stopping:
            self._go_on(at)

    def _close(self, box: SimulatedContainer, at: float, code: int) -> None:
        """The process is gone."""
        instance, occupant = box.instance, box.process
        assert instance is not None  # noqa: S101  (only what runs is closed)
        box.last = ContainerExit(
            container_id=instance.container_id, code=code, started_at=box.started_at, at=at
        )
        box.state, box.due, box.ready_due, box.ready = ContainerPhase.ENDED, None, None, False
        box.instance = box.process = None
        if occupant is not None:
            occupant.end(instance)

    # What the server is told.

    def status(self, now: float) -> dict[str, Any]:
        """All of a pod's status that is the kubelet's."""
        return self._statement.build(
            self.boxes, since=self.since, now=now, host_ip=self._machine.ip, pod_ip=self._ip
        )

    def status_written(self, status: dict[str, Any], answer: Pod) -> None:
        """The server has it."""
        self.written = status
        self._revision = int(answer.metadata.resource_version)
        self.pod_updated(self.pod)

    def pod_updated(self, pod: Pod) -> None:
        """The server's word: where somebody else has written our part of it, we say it again."""
        self.pod = pod
        if self.written is None or int(pod.metadata.resource_version) <= self._revision:
            return
        ours = {each["type"]: each["status"] for each in self.written["conditions"]}
        theirs = pod.condition("Ready")
        if theirs is None or theirs.status != ours["Ready"]:
            self.written = None

    # What an occupant says.

    def process_ready(self, box: SimulatedContainer, container_id: str, ready: bool) -> None:
        """Of the instance that runs now."""
        if box.instance is not None and box.instance.container_id == container_id:
            box.ready = ready and not box.init
            self._stirred()

    def process_exited(self, box: SimulatedContainer, container_id: str, code: int) -> None:
        """Taken up by the next `advance`."""
        if box.instance is not None and box.instance.container_id == container_id:
            box.due, box.code = self._machine.clock.now(), code
            self._stirred()


class _Voice:
    __slots__ = ("_box", "_container_id", "_life")

    def __init__(self, life: PodLifecycle, box: SimulatedContainer, container_id: str) -> None:
        self._life = life
        self._box = box
        self._container_id = container_id

    def ready(self, ready: bool) -> None:
        self._life.process_ready(self._box, self._container_id, ready)

    def exit(self, code: int) -> None:
        self._life.process_exited(self._box, self._container_id, code)
