"""What a run has shown: plans beside what happened, and the time of each node. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from demo.fleet import Fleet
from demo.observed import Observed
from libs.contracts.events import Event, GrantEvent, StepEvent, WaitEvent
from libs.contracts.message import MalformedMessage
from libs.contracts.node import UpgradeState
from libs.ctl.comparison import Comparison
from libs.ctl.output import view_lines
from libs.ctl.rollout_history import RolloutHistory
from libs.ctl.text import duration
from libs.ctl.views.comparison import comparison_view, unplanned

WIDTH: Final = 100
_WAITS: Final = 3
"""How many of a node's waits are listed."""
_ENDS: Final = (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)


class NodeTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long a node was being upgraded, over all attempts, and what it waited for meanwhile."""

    node: str
    seconds: float
    waits: Mapping[str, float]
    """Seconds by the code of the wait."""
    attempts: int = 1
    between: float = 0.0
    """Seconds between its attempts."""


def report_lines(
    events: Sequence[Event], fleet: Fleet, seen: Observed, versions: Mapping[str, str]
) -> Iterator[str]:
    """Return the plan of each pool beside what happened, the nodes' times, and what people left."""
    history = RolloutHistory()
    for event in events:
        with suppress(MalformedMessage):
            history.add(event, event.open())
    targets: set[str] = set()
    for pool in fleet.pools:
        for target in history.targets(pool.key)[:1]:
            targets.add(target)
            comparison = history.comparison(pool.key, target, now=events[-1].at)
            named = replace(comparison, version=versions.get(target, ""))
            yield ""
            yield from _compared(named)
    times = node_times(events, targets)
    if times:
        yield ""
        yield "Time of each node, from its grant to its end, and what it waited for meanwhile:"
        yield from map(_time_line, times)
    yield from _left_lines(seen)


def _compared(comparison: Comparison) -> Iterator[str]:
    """Yield a plan beside what happened, or why no plan could know that."""
    why = list(unplanned(comparison))
    if not why or comparison.planned_at is None:
        yield from view_lines(comparison_view(comparison, width=WIDTH), width=WIDTH)
        return
    yield f"{comparison.pool} to {comparison.version or comparison.target}"
    yield f"  took {duration(comparison.makespan)}. What no plan could know:"
    yield from (f"  {text}" for text in why)


def node_times(events: Iterable[Event], targets: set[str]) -> list[NodeTime]:
    """Return the times of nodes in upgrades to these targets, the longest first."""
    began: dict[str, float] = {}
    took: defaultdict[str, float] = defaultdict(float)
    attempts: defaultdict[str, int] = defaultdict(int)
    ended: dict[str, float] = {}
    between: defaultdict[str, float] = defaultdict(float)
    waits: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    current: dict[str, tuple[str, float]] = {}

    def end_wait(node: str, at: float) -> None:
        code, since = current.pop(node, ("", at))
        if code and node in began:
            waits[node][code] += at - max(since, began[node])

    for event in events:
        try:
            body = event.open()
        except MalformedMessage:
            continue
        match body:
            case GrantEvent(target=target) if target in targets:
                began |= {node: event.at for node in body.nodes if node not in began}
                for node in body.nodes:  # what it waited for until now is no part of its time
                    current.pop(node, None)
                    between[node] += event.at - ended.pop(node, event.at)
            case WaitEvent():
                end_wait(event.node, event.at)
                if body.code is not None:
                    current[event.node] = body.code.value, event.at
            case StepEvent(after=after) if after in _ENDS and event.node in began:
                end_wait(event.node, event.at)
                took[event.node] += event.at - began.pop(event.node)
                attempts[event.node] += 1
                ended[event.node] = event.at
            case _:
                pass
    found = [
        NodeTime(
            node=node,
            seconds=seconds,
            waits=dict(waits[node]),
            attempts=attempts[node],
            between=between[node],
        )
        for node, seconds in took.items()
    ]
    return sorted(found, key=lambda each: (-each.seconds, each.node))


def _time_line(time: NodeTime) -> str:
    longest = sorted(time.waits.items(), key=lambda each: -each[1])[:_WAITS]
    waits = ", ".join(f"{code} {seconds:.0f} s" for code, seconds in longest if seconds >= 1.0)
    again = ""
    if time.attempts > 1:
        again = f", in {time.attempts} attempts, and {duration(time.between)} between them"
    return f"  {time.node:<8} {duration(time.seconds):>10}{again}   {waits}".rstrip()


def _left_lines(seen: Observed) -> Iterator[str]:
    """Yield what people did to nodes that is still so."""
    cordoned = [node for node in seen.nodes.values() if node.cordoned]
    if cordoned:
        yield ""
    for node in cordoned:
        yield f"{node.name} is still cordoned, as a person left it, and is {node.state}."
