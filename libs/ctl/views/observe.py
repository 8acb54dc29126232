"""A GPU Operator's fleet, for people. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from libs.ctl.observe.answers import ObservedNode, ObservedStatus
from libs.ctl.observe.fleet import Operator, OperatorNode
from libs.ctl.observe.plan import Course, NodeForecast, ObservedPlan
from libs.ctl.observe.traps import Trap
from libs.ctl.text import duration, plural, some
from libs.ctl.views.layout import fact, heading, line, listing
from libs.ctl.views.plan import NAMED, file_facts
from libs.ctl.views.status import POOL_COLUMNS, node_columns, sources_view

_POOLS: Final = tuple(
    POOL_COLUMNS[title]
    for title in ("POOL", "DRIVER", "DONE", "WAITING", "IN FLIGHT", "FAILED", "UNAVAILABLE")
)


def observed_view(
    answer: ObservedStatus | ObservedNode | ObservedPlan, *, now: float, width: int, wide: bool
) -> RenderableType:
    """Return the answer of `status`, `why` or `plan`."""
    match answer:
        case ObservedStatus():
            return _status(answer, now=now, width=width, wide=wide)
        case ObservedNode():
            return _node(answer, now)
        case ObservedPlan():
            return _plan(answer, wide=wide)


def operator_line(operator: Operator, now: float) -> str:
    """Return whose fleet it is, and whether its operator works."""
    where = f" in namespace {operator.namespace}" if operator.namespace else ""
    head = f"This fleet is looked after by NVIDIA's GPU Operator{where}; Sluice is not installed."
    if operator.is_live:
        return head
    if operator.renewed is None:
        return f"{head} No operator holds its Lease: whether it runs is not known."
    return f"{head} It last renewed its Lease {duration(now - operator.renewed)} ago: it is away."


def _status(status: ObservedStatus, *, now: float, width: int, wide: bool) -> RenderableType:
    parts: list[RenderableType] = [line(operator_line(status.operator, now)), Text("")]
    if not status.pools:
        parts.append(line("There is neither a ClusterPolicy nor an NVIDIADriver."))
    parts.append(listing(_POOLS, status.pools, width=width, wide=wide))
    parts += (
        fact(f"{pool.name} starts no node", pool.because) for pool in status.pools if pool.because
    )
    if status.nodes:
        columns = node_columns(_because)
        parts += [Text(""), listing(columns, status.nodes, width=width, wide=wide)]
    parts += _traps(status.traps)
    return Group(*parts, Text(""), *sources_view(status.sources))


def _because(node: OperatorNode) -> str:
    notes = (
        node.because or "see sluice why",
        "cordoned" if node.cordoned else "",
        "" if node.ready else "not Ready",
    )
    return "; ".join(filter(None, notes))


def _traps(traps: Sequence[Trap]) -> Iterator[RenderableType]:
    if traps:
        yield Text("")
        yield line("known traps of the operator:")
    for trap in traps:
        yield fact(trap.name, trap.found)
        yield fact("  do", trap.remedy)


def _node(answer: ObservedNode, now: float) -> RenderableType:
    node, why = answer.node, answer.why
    parts: list[RenderableType] = [
        heading(f"{node.name}: {node.state or 'no upgrade state'}"),
        fact("because", why.because),
    ]
    if why.until:
        parts.append(fact("until", why.until))
    if why.who:
        parts.append(fact("can be ended by", why.who))
    parts += (fact(name, text) for name, text in _node_facts(answer) if text)
    parts += _traps(answer.traps)
    if answer.events:
        parts += [Text(""), line("Events:")]
        parts += (fact(f"{each.at} {each.name}", each.text) for each in answer.events)
    parts += [Text(""), line(operator_line(answer.operator, now))]
    return Group(*parts, *sources_view(answer.sources))


def _node_facts(answer: ObservedNode) -> Iterator[tuple[str, str]]:
    node = answer.node
    yield "pool", node.pool
    yield "driver", node.driver
    if node.pod is not None:
        revision = "of the wanted revision" if node.pod.synced else "of an older revision"
        ready = "ready" if node.pod.ready else "not ready"
        yield "driver pod", f"{node.pod.name}, {revision}, {ready}"
    yield "cordon", "no new pods are scheduled on the node" if node.cordoned else ""
    yield "kubelet", "" if node.ready else "the Node is not Ready"
    yield "pods with GPUs", some((pod.name for pod in answer.evicted), 5)
    for pod in answer.evicted:
        yield f"pod {pod.name}", pod.obstacle
        if pod.budget:
            yield f"pod {pod.name}", f"disruption budget {pod.budget} refuses its eviction now"


def _plan(plan: ObservedPlan, *, wide: bool) -> RenderableType:
    given = f", with {plan.file.file}" if plan.file is not None else ""
    parts: list[RenderableType] = [
        heading(f"{plan.pool} to {plan.version or 'its driver'}{given}"),
        fact("limits", _limits(plan.limits.max_unavailable, plan.limits.max_parallel)),
        *(fact(name, text) for name, text in file_facts(plan.file, most=0 if wide else NAMED)),
        fact("nodes", f"{len(plan.nodes)} are upgraded"),
        fact("a node takes", _node_seconds(plan)),
        fact("under the GPU Operator", _course(plan.operator)),
        fact("under Sluice", _course(plan.sluice)),
        fact("pods", f"{sum(len(node.evicted) for node in plan.nodes)} evicted"),
    ]
    if restarts := sum(node.restarts_only for node in plan.nodes):
        parts.append(fact("without evictions", plural(restarts, "node")))
    parts += _obstacles(plan.nodes, wide=wide)
    parts += (fact("not as the others", each) for each in plan.left_out)
    parts.append(line("An estimate: no node fails, and no job is waited for.", "dim"))
    return Group(*parts, Text(""), *sources_view(plan.sources))


def _limits(max_unavailable: int | str | None, max_parallel: int) -> str:
    parallel = max_parallel or "0 (unlimited)"
    return f"maxParallelUpgrades {parallel}, maxUnavailable {max_unavailable}"


def _node_seconds(plan: ObservedPlan) -> str:
    if plan.measured_nodes:
        seen = plural(plan.measured_nodes, "upgrade")
        return f"{duration(plan.node_seconds)}, the median of {seen} in its Events"
    return f"{duration(plan.node_seconds)}, as in NVIDIA's documentation: no upgrade is in Events"


def _course(course: Course) -> str:
    if course.seconds is None:
        return f"it does not end: {course.because}"
    first = f", after {plural(course.first, 'node')} proved the driver" if course.first else ""
    return f"{course.at_once} at once{first}: about {duration(course.seconds)}"


def _obstacles(nodes: Sequence[NodeForecast], *, wide: bool) -> Iterator[RenderableType]:
    blocked: dict[str, list[str]] = {}
    for node in nodes:
        for pod in node.evicted:
            if pod.budget:
                blocked.setdefault(pod.budget, []).append(pod.name)
    for budget, pods in sorted(blocked.items()):
        shown = len(pods) if wide else 3
        yield fact(f"disruption budget {budget} refuses now", some(pods, shown))
    for node in nodes:
        if node.without_place:
            lost = some(node.without_place, len(node.without_place) if wide else 3)
            yield fact(f"{node.name} away: no other node has GPUs for", lost)
        if node.note:
            yield fact(node.name, node.note)
