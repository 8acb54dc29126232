"""The fleet at one moment: pools, nodes, who has what, what happened, and from where. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from libs.contracts.events import Event
from libs.contracts.queries import HeldNode, NodeWait, StatusAnswer
from libs.contracts.waits import WaitCode
from libs.fleet.names import name_versions, natural_order
from libs.fleet.node import FleetNode, without_logs_command
from libs.fleet.pools import Pool


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where figures come from, and how old they are."""

    name: str
    gives: str
    age: float | None = None
    """Seconds; None: not asked or not answered."""
    problem: str = ""
    remedy: str = ""
    """What to do about the problem."""
    behind: dict[str, float] = {}
    """Seconds since each of the source's own sources was up to date."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet, or one pool of it, with the sources that gave it and what they could not give."""

    pools: tuple[Pool, ...]
    nodes: tuple[FleetNode, ...]
    """Of all pools, the nodes that are not done, are cordoned, or are not divided as
    asked; of one pool, all its nodes."""
    sources: tuple[Source, ...]
    held: tuple[HeldNode, ...] = ()
    """Nodes that people have; without the scheduler, of the nodes above only."""
    exit_code: int = 0
    """What it means that Kubernetes gave only a part, or nothing; 0: it gave all."""


class EventLine(msgspec.Struct, frozen=True, kw_only=True):
    """An event for people."""

    at: float
    writer: str
    node: str
    kind: str
    message: str

    @classmethod
    def of(cls, event: Event, versions: Mapping[str, str]) -> "EventLine":
        message = name_versions(event.message, versions)
        return cls(
            at=event.at,
            writer=event.writer,
            node=event.node,
            kind=event.kind.value,
            message=message,
        )


def with_reasons(
    rows: Iterable[FleetNode], answer: StatusAnswer | None, versions: Mapping[str, str]
) -> tuple[FleetNode, ...]:
    """Add what the scheduler says that nodes wait for.

    The budget is told once for all of a pool, with the nodes that use it up.
    """
    pools = () if answer is None else answer.pools
    reasons = {each.node: _reason(each, versions) for pool in pools for each in pool.node_waits}
    return tuple(
        msgspec.structs.replace(row, because=reasons[row.name]) if row.name in reasons else row
        for row in rows
    )


def _reason(wait: NodeWait, versions: Mapping[str, str]) -> str:
    detail = without_logs_command(name_versions(wait.detail, versions))
    if wait.code is WaitCode.BUDGET or not detail:
        return wait.code.value
    return detail if wait.code is WaitCode.FAILED else f"{wait.code.value}: {detail}"


def scheduler_source(answer: StatusAnswer, *, now: float) -> Source:
    """Return the scheduler as a source."""
    name = f"scheduler {answer.leader}" if answer.leader else "scheduler"
    return Source(
        name=name, gives="waits", age=max(0.0, now - answer.at), behind=dict(answer.sources)
    )


def held_nodes(
    rows: Iterable[FleetNode], answer: StatusAnswer | None, pool: str
) -> tuple[HeldNode, ...]:
    """Return the nodes that people have: of one pool, or of all."""
    told = answer.pools if answer is not None else ()
    found = {held.node: held for each in told if pool in ("", each.pool) for held in each.held}
    found |= {row.name: row.held for row in rows if row.held is not None}
    return tuple(found[name] for name in sorted(found, key=natural_order))
