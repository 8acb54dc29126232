"""Read what a node's components reported. Reports of another Node uid are ignored."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from libs.bus.heartbeats import HeartbeatMonitor, LastBeat
from libs.bus.reports import ReportCache
from libs.bus.slot_cache import SlotCache
from libs.contracts.commands import Command, Order
from libs.contracts.facts import Facts
from libs.contracts.health import Health
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage
from libs.contracts.reports import (
    Evidence,
    Progress,
    Refusal,
    Report,
    Result,
    StateBody,
    StateKind,
    Usage,
)
from libs.contracts.subjects import State
from libs.policy.render.agents import AGENTS
from libs.rollout.views.machine import Component, GpuVerdict
from services.scheduler.resources import Node
from services.scheduler.snapshot.gpu_verdict import gpu_verdict

B = TypeVar("B", Facts, Evidence, Usage)

NEVER: Final = 1e12
"""`silent_at` of a component that sends heartbeats: each one postpones the silence."""

_SELECTORS: Final = {agent.component: agent.selector for agent in AGENTS}
"""The label that selects the nodes of each agent."""


_OF_ALL_COMPONENTS: Final = frozenset({StateKind.RESULT, StateKind.PROGRESS, StateKind.REFUSAL})
_OF_ONE_COMPONENT: Final = frozenset(
    {
        (Writer.DRIVER, StateKind.FACTS),
        (Writer.DISCOVERY, StateKind.FACTS),
        (Writer.DRIVER, StateKind.USAGE),
        (Writer.DRIVER, StateKind.PREFLIGHT),
        (Writer.VALIDATOR, StateKind.EVIDENCE),
        (Writer.TELEMETRY, StateKind.HEALTH),
    }
)


def is_read(state: State) -> bool:
    """Return whether the scheduler reads reports of this component and kind."""
    kind = StateKind(state.kind)
    return kind in _OF_ALL_COMPONENTS or (state.component, kind) in _OF_ONE_COMPONENT


class NodeReports(msgspec.Struct, frozen=True, kw_only=True):
    components: Mapping[str, Component] = {}
    facts: Facts | None = None
    """From the driver agent, in this boot, as are evidence and usage."""
    described: Facts | None = None
    """From the discovery agent, in this boot: what the GPUs are, and how they are divided."""
    evidence: Evidence | None = None
    usage: Usage | None = None
    gpu_verdict: GpuVerdict | None = None
    """From the telemetry agent, in whichever boot."""


def node_reports(
    node: Node,
    *,
    absent_agents: Collection[Writer],
    reports: ReportCache,
    heartbeats: HeartbeatMonitor,
    slot_cache: SlotCache,
    now: float,
) -> NodeReports:
    """Read the reports, heartbeats and slots of a node."""
    name, uid = node.metadata.name, node.metadata.uid
    boot_id = node.status.node_info.boot_id
    components = _expected_components(node.metadata.labels, absent_agents)
    slots = slot_cache.commands_of(name)
    if node.field_managers:
        components += _running_components(name, set(slots).difference(components), heartbeats)
    bodies = [
        (state, body, report.boot_id == boot_id)
        for state, report in reports.reports(name)
        if report.node_uid == uid and (body := _open(report)) is not None
    ]
    of_this_boot = [(state, body) for state, body, in_this_boot in bodies if in_this_boot]
    return NodeReports(
        components={
            component: _component(
                [
                    (body, current)
                    for state, body, current in bodies
                    if state.component == component
                ],
                heartbeats.last(name, component),
                is_silent=heartbeats.is_silent(name, component),
                flood=_flood_before_silence(name, component, reports, heartbeats),
                slot=slots.get(component),
                uid=uid,
                boot_id=boot_id,
                now=now,
            )
            for component in components
        },
        facts=_find(Facts, Writer.DRIVER, of_this_boot),
        described=_find(Facts, Writer.DISCOVERY, of_this_boot),
        evidence=_find(Evidence, Writer.VALIDATOR, of_this_boot),
        usage=_find(Usage, Writer.DRIVER, of_this_boot),
        gpu_verdict=_gpu_verdict(name, uid, reports),
    )


def _gpu_verdict(name: str, uid: str, reports: ReportCache) -> GpuVerdict | None:
    report = reports.get(name, Writer.TELEMETRY, StateKind.HEALTH)
    if report is None or report.node_uid != uid:
        return None
    body = _open(report)
    return gpu_verdict(report.boot_id, body) if isinstance(body, Health) else None


def _flood_before_silence(
    name: str, component: str, reports: ReportCache, heartbeats: HeartbeatMonitor
) -> float:
    """Return the recent excessive rate of a silent component; 0 for one that is not silent."""
    if not heartbeats.is_silent(name, component):
        return 0.0
    return max(heartbeats.flood_rate(name, component), reports.flood_rate(name, component))


def _expected_components(labels: Mapping[str, str], absent: Collection[Writer]) -> list[str]:
    return [
        component.value
        for component, (key, value) in _SELECTORS.items()
        if labels.get(key) == value and component not in absent
    ]


def _running_components(
    name: str, components: Collection[str], heartbeats: HeartbeatMonitor
) -> list[str]:
    """Return those that still run on a managed node: they release the devices by command."""
    return [
        component
        for component in sorted(components)
        if heartbeats.last(name, component) is not None
        and not heartbeats.is_silent(name, component)
    ]


def _open(report: Report) -> StateBody | None:
    """Return the body; None if this version cannot read it."""
    try:
        return report.open()
    except MalformedMessage:
        return None


def _find(kind: type[B], writer: Writer, bodies: Iterable[tuple[State, StateBody]]) -> B | None:
    return next(
        (body for state, body in bodies if state.component == writer and isinstance(body, kind)),
        None,
    )


def _component(
    bodies: Iterable[tuple[StateBody, bool]],
    last: LastBeat | None,
    *,
    is_silent: bool,
    flood: float,
    slot: Command | None,
    uid: str,
    boot_id: str,
    now: float,
) -> Component:
    """Return the view of a component; each body comes with whether it is of this boot."""
    highest = Order(0, 0)
    if last is not None and last.beat.node_uid == uid:
        highest = Order(last.beat.token, last.beat.op)
    alive = last if last is not None and _is_of(last, uid, boot_id) else None
    result = progress = refusal = None
    for body, in_this_boot in bodies:
        match body:
            case Result():
                result, highest = body, max(highest, body.order)
            case Progress():
                highest = max(highest, body.order)
                progress = body if in_this_boot else None
            case Refusal():
                refusal = body
            case Evidence():
                highest = max(highest, body.order)
            case _:
                pass
    return Component(
        last_beat=now - alive.age if alive is not None else None,
        silent_at=now if is_silent else NEVER,
        flood=flood,
        capabilities=frozenset(alive.beat.knows) if alive is not None else frozenset(),
        slot=slot,
        result=result,
        progress=progress,
        refusal=refusal,
        highest_order=highest,
    )


def _is_of(last: LastBeat, uid: str, boot_id: str) -> bool:
    return (last.beat.node_uid, last.beat.boot_id) == (uid, boot_id)
