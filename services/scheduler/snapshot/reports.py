"""What a node's components say, as the engine sees it. Pure but for what it is given to ask.

Reports of another node uid count for nothing, and most of those of another boot.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from libs.bus.heartbeats import LastBeat
from libs.contracts.commands import Command, Order
from libs.contracts.facts import Facts
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage
from libs.contracts.reports import (
    Evidence,
    Progress,
    Refusal,
    Report,
    Result,
    StateBody,
    Usage,
)
from libs.contracts.subjects import State
from libs.policy.render.agents import AGENTS
from libs.rollout.views.machine import Component

B = TypeVar("B", Facts, Evidence, Usage)

NEVER: Final = 1e12
"""A moment that never comes: each beat puts it off until then that its sender counts as silent."""

_AGENTS: Final = {
    agent.component: agent.selector for agent in AGENTS if agent.component is not Writer.PLUGIN
}
"""By which label each is placed. The device plugin does not exist yet."""


class ComponentHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """The pulse of one component."""

    last: LastBeat | None = None
    silent: bool = False


class NodeReports(msgspec.Struct, frozen=True, kw_only=True):
    """What the reports of a node come to."""

    components: Mapping[str, Component] = {}
    facts: Facts | None = None
    """The driver agent's, of this boot."""
    evidence: Evidence | None = None
    usage: Usage | None = None


def expected_components(labels: Mapping[str, str], *, telemetry: bool) -> tuple[str, ...]:
    """The components that belong on a node with these labels."""
    return tuple(
        component.value
        for component, (key, value) in _AGENTS.items()
        if labels.get(key) == value and (telemetry or component is not Writer.TELEMETRY)
    )


def node_reports(
    components: Iterable[str],
    reports: Iterable[tuple[State, Report]],
    heartbeats: Mapping[str, ComponentHeartbeat],
    slots: Mapping[str, Command],
    *,
    uid: str,
    boot_id: str,
    now: float,
) -> NodeReports:
    """All of it, of this node uid and boot."""
    opened = [
        (of, report, body)
        for of, report in reports
        if report.node_uid == uid and (body := _open(report)) is not None
    ]
    here = [(of, body) for of, report, body in opened if report.boot_id == boot_id]
    return NodeReports(
        components={
            name: _component(
                [
                    (body, report.boot_id == boot_id)
                    for of, report, body in opened
                    if of.component == name
                ],
                heartbeats.get(name, ComponentHeartbeat()),
                slots.get(name),
                (uid, boot_id),
                now,
            )
            for name in components
        },
        facts=_last(Facts, Writer.DRIVER, here),
        evidence=_last(Evidence, Writer.VALIDATOR, here),
        usage=_last(Usage, Writer.DRIVER, here),
    )


def _open(report: Report) -> StateBody | None:
    """A body that this version cannot read is no word at all."""
    try:
        return report.open()
    except MalformedMessage:
        return None


def _last(kind: type[B], writer: Writer, found: Iterable[tuple[State, StateBody]]) -> B | None:
    return next(
        (body for of, body in found if of.component == writer and isinstance(body, kind)), None
    )


def _component(
    bodies: list[tuple[StateBody, bool]],
    voice: ComponentHeartbeat,
    slot: Command | None,
    of: tuple[str, str],
    now: float,
) -> Component:
    beat = voice.last.beat if voice.last is not None else None
    same_node = beat is not None and beat.node_uid == of[0]
    alive = voice.last if beat is not None and (beat.node_uid, beat.boot_id) == of else None
    result = progress = refusal = None
    highest = Order(beat.token, beat.op) if beat is not None and same_node else Order(0, 0)
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
        silent_at=now if voice.silent else NEVER,
        capabilities=frozenset(alive.beat.knows) if alive is not None else frozenset(),
        slot=slot,
        result=result,
        progress=progress,
        refusal=refusal,
        highest_order=highest,
    )
