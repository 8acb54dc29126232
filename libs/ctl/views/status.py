"""Pools, nodes and the sources of their figures, for people. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from rich.console import Group, RenderableType
from rich.text import Text

from libs.contracts.node import Operation, UpgradeState
from libs.contracts.queries import HeldNode
from libs.contracts.rollout import Brake, left_out
from libs.ctl.checks import BEHIND
from libs.ctl.leases import describe
from libs.ctl.text import duration, plural
from libs.ctl.views.layout import Column, fact, line, listing
from libs.fleet.node import FleetNode, cause_text, driver_text, short_notes
from libs.fleet.pools import Pool, is_told_by_brake, resume_command
from libs.fleet.status import Source, Status

N = TypeVar("N", bound=FleetNode)

_MOST_HELD: Final = 20
_MOST_NODES: Final = 12
POOL_COLUMNS: Final[Mapping[str, Column[Pool]]] = {
    each.title: each
    for each in (
        Column[Pool]("POOL", lambda pool: pool.name),
        Column[Pool]("DRIVER", lambda pool: pool.version or "none"),
        Column[Pool]("PHASE", lambda pool: pool.phase),
        Column[Pool](
            "DONE", lambda pool: f"{pool.counts['done']}/{pool.counts['total']}", right=True
        ),
        Column[Pool]("WAITING", lambda pool: f"{pool.counts['waiting']}", right=True),
        Column[Pool]("IN FLIGHT", lambda pool: f"{pool.counts['in_flight']}", right=True),
        Column[Pool]("FAILED", lambda pool: f"{pool.counts['failed']}", right=True),
        Column[Pool]("BRAKE", lambda pool: pool.brake, is_wide=True),
        Column[Pool](
            "UNAVAILABLE",
            lambda pool: f"{pool.counts['unavailable']} of {pool.counts['limit']}",
            right=True,
            is_wide=True,
        ),
        Column[Pool]("TARGET", lambda pool: pool.target, is_wide=True),
    )
}
"""By title: how many of its nodes wait is told by what they wait for, where that is known."""
_POOLS: Final = tuple(each for title, each in POOL_COLUMNS.items() if title != "WAITING")


def status_view(status: Status, *, now: float, width: int, wide: bool = False) -> RenderableType:
    """Return pools, their remarks, the nodes to look at, and the sources."""
    parts: list[RenderableType] = []
    if not status.pools and not status.exit_code:
        parts.append(line("There is no pool: no policy selects a node with GPUs."))
    parts.append(listing(_POOLS, status.pools, width=width, wide=wide))
    for pool in status.pools:
        parts += _remarks(pool, now)
        parts += _above_limit(pool, status.nodes)
    parts += held_view(status.held, now)
    if status.nodes:
        nodes = status.nodes if wide else _foremost(status.nodes)
        since = Column[FleetNode]("SINCE", lambda node: _since(node, now), right=True)
        columns = node_columns(_because, since)
        parts += [Text(""), listing(columns, nodes, width=width, wide=wide)]
        if rest := len(status.nodes) - len(nodes):
            parts.append(line(f"and {plural(rest, 'more node')}; -o wide lists all"))
    return Group(*parts, Text(""), *sources_view(status.sources))


def _foremost(nodes: Sequence[FleetNode]) -> Sequence[FleetNode]:
    """Return as many nodes as stay on a screen: those that failed or are in flight come first."""
    if len(nodes) <= _MOST_NODES:
        return nodes
    failed = UpgradeState.UPGRADE_FAILED
    return sorted(nodes, key=lambda each: (each.state != failed, not each.in_flight))[:_MOST_NODES]


def _remarks(pool: Pool, now: float) -> Iterator[RenderableType]:
    if pool.brake != Brake.NONE:
        yield fact(f"{pool.name} brake", _brake(pool, now))
    if pool.because and not is_told_by_brake(pool):
        yield fact(f"{pool.name} {pool.phase}", f"{pool.because}{_release(pool)}")
    if pool.waits:
        waits = sorted(pool.waits.items(), key=lambda each: (-each[1], each[0]))
        yield fact(f"{pool.name} waits", ", ".join(f"{count} {code}" for code, count in waits))
    if pool.budget:
        yield fact(f"{pool.name} budget", pool.budget)
    if count := pool.without_gpus:
        nodes = "1 node has" if count == 1 else f"{count} nodes have"
        yield fact(f"{pool.name} GPUs", f"{nodes} a GPU that no container can have")
    text = left_out(skipped=pool.counts["skipped"], excluded=pool.counts["excluded"])
    if text and text != pool.because:
        about, _, nodes = text.partition(": ")
        yield fact(f"{pool.name} {about}", nodes)


def _above_limit(pool: Pool, nodes: Iterable[FleetNode]) -> Iterator[RenderableType]:
    """Yield why more nodes are in flight than may be unavailable, where first drivers are why."""
    limit = pool.counts["limit"]
    brought_up = any(
        node.in_flight and node.pool == pool.name and node.operation == Operation.BRING_UP
        for node in nodes
    )
    if brought_up and pool.counts["in_flight"] > limit:
        why = "nodes without a driver have no capacity to lose"
        yield fact(f"{pool.name} in flight", f"more than maxUnavailable ({limit}): {why}")


def _release(pool: Pool) -> str:
    return f"; `{pool.halt_ended_by}` accepts that" if pool.halt_ended_by else ""


def _brake(pool: Pool, now: float) -> str:
    ends = f"`{resume_command(pool.name)}` ends it"
    if (author := pool.brake_set) is None:
        return f"{pool.brake}; {ends}"
    ago = "" if author.at is None else f" {duration(now - author.at)} ago"
    reason = f": {author.reason}" if author.reason else ""
    return f"{pool.brake}, set by {author.name}{ago}{reason}; {ends}"


def held_view(held: Sequence[HeldNode], now: float) -> Iterator[RenderableType]:
    """Yield a line for each lease of a person: node, name, time, reason, and how it ends."""
    for each in held[:_MOST_HELD]:
        yield fact(f"{each.node} lease", describe(each, now=now))
    if len(held) > _MOST_HELD:
        yield line(f"and {len(held) - _MOST_HELD} more nodes that people have")


def _since(node: FleetNode, now: float) -> str:
    return "" if node.since is None else duration(now - node.since)


def node_columns(because: Callable[[N], str], *beside: Column[N]) -> tuple[Column[N], ...]:
    """Return the columns of nodes: what each is, and why; `beside` it what else is known."""
    return (
        Column("NODE", lambda node: node.name),
        Column("STATE", lambda node: node.state or "none"),
        *beside,
        Column("DRIVER", lambda node: driver_text(node).partition(" ")[0]),
        Column("BECAUSE", because, folds=True),
        Column("POOL", lambda node: node.pool, is_wide=True),
    )


def _because(node: FleetNode) -> str:
    """Return why a node is in its state, and what else is special about it."""
    _, _, before = driver_text(node).partition(" ")
    notes = (
        before.strip("()"),
        f"{node.wanted} is wanted" if node.wanted else "",
        "leased" if node.held is not None and not node.held.waits else "",
        cordon_text(node),
        "" if node.is_divided else f"MIG {node.mig}",
        *_notes(node),
    )
    untold = (each for each in notes if each and each not in node.because)
    return "; ".join(filter(None, (node.because, *untold)))


def cordon_text(node: FleetNode) -> str:
    """Return that others cordoned a node: one in flight is cordoned by its operation too."""
    if node.was_cordoned:
        return "cordoned before its upgrade"
    return "cordoned" if node.cordoned and not node.in_flight else ""


def node_note(node: FleetNode) -> str:
    """Return what is special about a node, in a few words."""
    return "; ".join(filter(None, _notes(node)))


def _notes(node: FleetNode) -> tuple[str, ...]:
    return (
        node.trouble,
        cause_text(node),
        "skipped" if node.skipped else "",
        *short_notes(node),
    )


def sources_view(sources: Iterable[Source]) -> Iterator[RenderableType]:
    """Yield a line for each source: what it gives and how old that is, or why it gives nothing."""
    for source in sources:
        if source.problem:
            yield line(f"{source.gives}: not from {source.name}: {source.problem}", "yellow")
            if source.remedy:
                yield fact("do", source.remedy)
            continue
        age = "" if source.age is None else f", {duration(source.age)} old"
        yield line(f"{source.gives}: from {source.name}{age}", "dim")
        late = [(age, name) for name, age in source.behind.items() if age > BEHIND]
        if late:
            text = ", ".join(
                f"{name} by {duration(age)}" for age, name in sorted(late, reverse=True)
            )
            yield fact("its own sources are behind", text)
