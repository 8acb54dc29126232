"""What a node's components say, as the engine sees it. Pure but for what it is given to ask.

Reports of another node uid count for nothing, and most of those of another boot.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from libs.bus.pulse import Heard
from libs.contracts.commands import Command, Order
from libs.contracts.facts import Facts
from libs.contracts.identities import Writer
from libs.contracts.message import Unreadable
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
from libs.policy.rendering.agents import AGENTS
from libs.rollout.views.machine import Component

B = TypeVar("B", Facts, Evidence, Usage)

FAR: Final = 1e12
"""A moment that never comes: each beat puts it off until then that its sender counts as silent."""

_AGENTS: Final = {
    agent.component: agent.selector for agent in AGENTS if agent.component is not Writer.PLUGIN
}
"""By which label each is placed. The device plugin does not exist yet."""


class Voice(msgspec.Struct, frozen=True, kw_only=True):
    """The pulse of one component."""

    heard: Heard | None = None
    silent: bool = False


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What the reports of a node come to."""

    components: Mapping[str, Component] = {}
    facts: Facts | None = None
    """The driver agent's, of this boot."""
    evidence: Evidence | None = None
    usage: Usage | None = None


def expected(labels: Mapping[str, str], *, telemetry: bool) -> tuple[str, ...]:
    """The components that belong on a node with these labels."""
    return tuple(
        component.value
        for component, (key, value) in _AGENTS.items()
        if labels.get(key) == value and (telemetry or component is not Writer.TELEMETRY)
    )


def said(
    names: Iterable[str],
    reports: Iterable[tuple[State, Report]],
    voices: Mapping[str, Voice],
    slots: Mapping[str, Command],
    *,
    uid: str,
    boot_id: str,
    now: float,
) -> Said:
    """All of it, of this node uid and boot."""
    opened = [
        (of, report, body)
        for of, report in reports
        if report.node_uid == uid and (body := _open(report)) is not None
    ]
    here = [(of, body) for of, report, body in opened if report.boot_id == boot_id]
    return Said(
        components={
            name: _component(
                [
                    (body, report.boot_id == boot_id)
                    for of, report, body in opened
                    if of.component == name
                ],
                voices.get(name, Voice()),
                slots.get(name),
                (uid, boot_id),
                now,
            )
            for name in names
        },
        facts=_last(Facts, Writer.DRIVER, here),
        evidence=_last(Evidence, Writer.VALIDATOR, here),
        usage=_last(Usage, Writer.DRIVER, here),
    )


def _open(report: Report) -> StateBody | None:
    """A body that this version cannot read is no word at all."""
    try:
        return report.open()
    except Unreadable:
        return None


def _last(kind: type[B], writer: Writer, found: Iterable[tuple[State, StateBody]]) -> B | None:
    return next(
        (body for of, body in found if of.component == writer and isinstance(body, kind)), None
    )


def _component(
    bodies: list[tuple[StateBody, bool]],
    voice: Voice,
    slot: Command | None,
    of: tuple[str, str],
    now: float,
) -> Component:
    beat = voice.heard.beat if voice.heard is not None else None
    same_node = beat is not None and beat.node_uid == of[0]
    alive = voice.heard if beat is not None and (beat.node_uid, beat.boot_id) == of else None
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
        heard=now - alive.ago if alive is not None else None,
        silent_at=now if voice.silent else FAR,
        knows=frozenset(alive.beat.knows) if alive is not None else frozenset(),
        slot=slot,
        result=result,
        progress=progress,
        refusal=refusal,
        highest=highest,
    )
