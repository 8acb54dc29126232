"""The state of a simulated stage: journalled, with views that can freeze, and to be copied."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, cast

from msgspec.structs import replace

from libs.contracts.commands import Command, CommandKind, Idle, Install, Swap
from libs.contracts.journal import EntryPhase
from libs.forecast.stage import views
from libs.forecast.stage.objects import (
    DriverPodPhase,
    StageAgent,
    StageDriverPod,
    StageMachine,
    StageNode,
)
from libs.forecast.stage.state import Latencies, ObjectRef, Requester, StageState
from libs.forecast.stage.views import SOURCES
from libs.forecast.world import WorldModel
from libs.rollout.decision import Step, Wait, WriteNode
from libs.rollout.views.fleet import Instant, SourceState
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import RolloutView
from libs.testing.stage.recorder import JournalRecorder

NODES, PODS, REPORTS, ROLLOUTS = "nodes", "pods", "reports", "rollouts"
"""The parts of the views."""
_PARTS: Mapping[str, Callable[[StageState, str], Any]] = {
    NODES: views.node_part,
    PODS: views.pods_part,
    REPORTS: views.reports_part,
}


class SimulatedState(StageState):
    def __init__(
        self, *, world: WorldModel, start: float, latencies: Latencies, journalled: bool
    ) -> None:
        super().__init__(world=world, start=start, latencies=latencies)
        self.recorder: JournalRecorder | None = JournalRecorder() if journalled else None
        self.violations: list[tuple[float, str, str]] = []
        """Time, node and description of everything that no order of events may cause."""
        self.last_proven: dict[str, tuple[str, ...]] = {}
        """By machine: node uid, kernel, label and install digest of the driver that was validated
        last, while no other was begun and the driver agent did not learn that it is void."""
        self.missed_pokes: dict[str, tuple[str, ...]] = {}
        """Components that miss their pokes, by node."""
        self.sources = dict[str, SourceState]()
        """Sources that are older than now."""
        self.frozen_parts: dict[str, Mapping[str, Any]] = {}
        """Frozen parts of the views, by node or pool."""
        self.paused_until = 0.0
        """Until then the leader decides nothing, like a process that is stopped."""
        self.leader_ahead = 0.0
        """Seconds by which the clock of the leader is ahead, for all of its term."""
        self.bus_down_since: float | None = None
        self.bus_outages: tuple[tuple[float, float], ...] = ()

    def copy(self) -> "SimulatedState":
        """Return an independent state, which shares immutable values."""
        copied = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | set | list):
                setattr(copied, name, copy(cast("Any", value)))
        copied.recorder = self.recorder.copy() if self.recorder is not None else None
        copied.nodes = {name: copy(node) for name, node in self.nodes.items()}
        copied.machines = {name: _copy_machine(each) for name, each in self.machines.items()}
        copied.memory = {name: copy(memory) for name, memory in self.memory.items()}
        return copied

    # The journal.

    def node_changed(self, name: str, paths: frozenset[str]) -> None:
        super().node_changed(name, paths)
        if self.recorder is not None:
            self.recorder.observe_pools(self)

    def machine_changed(self, machine: StageMachine) -> None:
        super().machine_changed(machine)
        if self.recorder is not None and machine.name in self.nodes:
            self.recorder.observe_holders(self, machine)
            self.recorder.observe_pools(self)

    def log(self, text: str) -> None:
        if self.recorder is not None:
            self.recorder.log(self.now, text)

    def on_request(
        self,
        ref: ObjectRef,
        by: Requester,
        code: int,
        revision: int = 0,
        after: StageNode | RolloutView | Mapping[str, Any] | None = None,
    ) -> None:
        if self.recorder is not None:
            self.recorder.request(self.now, ref, by, code, revision=revision, after=after)

    def on_entry(
        self,
        machine: StageMachine,
        agent: StageAgent,
        command: Command,
        phase: EntryPhase,
        **details: Any,
    ) -> None:
        self._follow_proof(machine, agent, command, phase)
        if self.recorder is not None:
            self.recorder.entry(
                self.now,
                machine.boot_id,
                agent.component,
                command,
                evidence=agent.pending_reports.evidence,
                phase=phase,
                **details,
            )

    def _follow_proof(
        self, machine: StageMachine, agent: StageAgent, command: Command, phase: EntryPhase
    ) -> None:
        evidence = agent.pending_reports.evidence
        if phase is EntryPhase.FINISHED and command.kind == CommandKind.VALIDATE:
            if evidence is not None and evidence.passed and evidence.order == command.order:
                self.last_proven[machine.name] = (
                    evidence.node_uid,
                    evidence.kernel,
                    evidence.label,
                    evidence.driver_digest,
                )
        elif phase is EntryPhase.STARTED and agent.component == "driver":
            body = command.open()
            if isinstance(body, Swap | Install) or body == Idle():
                self.last_proven.pop(machine.name, None)

    def on_gate_opened(self, machine: StageMachine, pod: StageDriverPod) -> None:
        """Record an opened gate that no command explains, and no proof of this very driver."""
        agent = machine.agents["driver"]
        if agent.has_read_slot:
            return
        asked = agent.node_uid, machine.kernel, pod.label, pod.install_digest
        if self.last_proven.get(machine.name) != asked:
            text = f"without a command, while {self.last_proven.get(machine.name)} was last proven"
            self._violated(machine, f"the gate opened to {pod.uid} {asked} {text}")

    def on_node_written(self, name: str, before: str, write: WriteNode, step: Step) -> None:
        if self.recorder is not None and write.applied.state != before:
            self.recorder.events.step(
                self.now + self.leader_ahead, self.nodes[name], before, write, step
            )

    def on_wait_changed(self, name: str, wait: Wait | None) -> None:
        if self.recorder is not None and name in self.nodes:
            self.recorder.events.wait(
                self.now + self.leader_ahead, self.nodes[name], wait, self.leader
            )

    def on_driver_start(self, machine: StageMachine, pod: StageDriverPod) -> None:
        """Record the violations the gate prevents: two drivers, or one over another's modules."""
        for other in machine.drivers.values():
            running = other.phase in {DriverPodPhase.LOADING, DriverPodPhase.RUNNING}
            if other is not pod and other.on_machine and running:
                text = f"while {other.uid} ({other.label}) runs"
                self._violated(machine, f"driver {pod.uid} ({pod.label}) started {text}")
        loaded = machine.loaded
        if loaded is not None and loaded.install_digest != pod.install_digest:
            text = f"started over the modules of {loaded.install_digest}"
            self._violated(machine, f"driver {pod.uid} ({pod.install_digest}) {text}")

    def _violated(self, machine: StageMachine, text: str) -> None:
        self.violations.append((self.now, machine.name, text))

    def poke_seconds(self, name: str, component: str) -> float:
        missed = component in self.missed_pokes.get(name, ())
        return self.latencies.slot_reread if missed else self.latencies.slot_poke

    # Views of which a part is frozen while the others go on.

    def freeze(self, part: str) -> None:
        """Keep showing that part as it is now."""
        if part in self.frozen_parts:
            return
        if part == ROLLOUTS:
            contents = {key: views.rollout_view(self, key) for key in self.pools}
        else:
            contents = {name: _PARTS[part](self, name) for name in self.machines}
        self.frozen_parts[part] = {
            name: content for name, content in contents.items() if content is not None
        }
        if part in SOURCES:
            self.sources[part] = SourceState(proved=self.now, revision=str(self.revision))

    def unfreeze(self, part: str) -> None:
        if self.frozen_parts.pop(part, None) is not None:
            self.sources.pop(part, None)
            self.touch_all(self.machines)
            self.touch_pools()

    def mute(self, source: str) -> None:
        """Let the source be current without showing it."""
        current = SourceState(proved=self.now, revision=str(self.revision))
        self.sources.setdefault(source, current)

    def touch_pools(self) -> None:
        for key in self.pools:
            self.touch_pool(key)

    def node_view(self, name: str) -> NodeView | None:
        node, pods, reports = (
            self.frozen_parts[part].get(name) if part in self.frozen_parts else make(self, name)
            for part, make in _PARTS.items()
        )
        return None if node is None else views.join_parts(self, node, pods or {}, reports or {})

    def rollout_view(self, key: str) -> RolloutView | None:
        if ROLLOUTS not in self.frozen_parts:
            return views.rollout_view(self, key)
        rollout = self.frozen_parts[ROLLOUTS].get(key)
        return rollout and replace(rollout, write_pending=key in self.writing_rollouts)

    def on_node_answer(self, name: str) -> None:
        """Show a frozen Node as the answer to a write to it does, or the read after a conflict."""
        if NODES in self.frozen_parts and (node := views.node_part(self, name)) is not None:
            self._refreeze(NODES, name, node)
            self.stale_views.add(name)

    def on_deletion_answer(self, name: str, uid: str) -> None:
        """Show the pod as terminating where the view is frozen."""
        if content := self.frozen_parts.get(PODS, {}).get(name):
            pods = tuple(
                replace(pod, deleting=pod.deleting or pod.uid == uid)
                for pod in content["driver_pods"]
            )
            self._refreeze(PODS, name, {**content, "driver_pods": pods})

    def on_rollout_answer(self, key: str) -> None:
        if ROLLOUTS in self.frozen_parts:
            self._refreeze(ROLLOUTS, key, views.rollout_view(self, key))
            self.stale_pool_views.add(key)

    def on_slot_answer(self, name: str, component: str) -> None:
        reports = self.frozen_parts.get(REPORTS, {}).get(name)
        if reports and component in reports["components"]:
            components = {**reports["components"]}
            slot = self.slots[name, component].command
            components[component] = replace(components[component], slot=slot)
            self._refreeze(REPORTS, name, {**reports, "components": components})

    def _refreeze(self, part: str, name: str, content: Any) -> None:
        self.frozen_parts[part] = {**self.frozen_parts[part], name: content}

    def instant(self, epoch: int) -> Instant:
        """Return the present moment with the freshness of all sources."""
        now = views.instant(self)
        sources = {**now.visibility.sources, **self.sources}
        for name in self.sources.keys() - self.frozen_parts:
            sources[name] = replace(sources[name], revision=str(self.revision))
        visibility = replace(
            now.visibility,
            sources=sources,
            bus_down_since=self.bus_down_since,
            bus_outages=self.bus_outages,
        )
        return replace(now, at=now.at + self.leader_ahead, epoch=epoch, visibility=visibility)


def probe_answered(state: SimulatedState, source: str) -> None:
    """Mark the source as current, unless it is frozen."""
    known = state.sources.get(source)
    if known is None or source not in SOURCES:
        return
    if source in state.frozen_parts:
        state.sources[source] = replace(known, probed=state.now)
    else:
        state.sources[source] = SourceState(
            proved=state.now, revision=str(state.revision), probed=state.now
        )
    state.touch_pools()


def _copy_machine(machine: StageMachine) -> StageMachine:
    copied = copy(machine)
    copied.drivers = {uid: copy(each) for uid, each in machine.drivers.items()}
    copied.tenant_pods = {uid: copy(each) for uid, each in machine.tenant_pods.items()}
    copied.agents = {part: copy(each) for part, each in machine.agents.items()}
    copied.counts = machine.counts.copy()
    return copied
