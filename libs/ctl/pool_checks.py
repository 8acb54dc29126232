"""What `sluice doctor` says of pools: halts, failures, and what people stopped or keep. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from libs.contracts.node import UpgradeState
from libs.contracts.rollout import IDLE_PHASES, Brake, RolloutPhase, braked_state
from libs.ctl.checks import Check, CheckedNode, fault, ok, warning
from libs.ctl.cordons import SLUICE, cordoned_by, skipped_by
from libs.ctl.leases import holder_text
from libs.ctl.text import duration, plural, some
from libs.fleet.names import natural_order
from libs.fleet.node import FleetNode, cause_text, fleet_node, is_done_for
from libs.fleet.pools import Rollout, ending_of_halt, resume_command
from libs.kube import views
from libs.kube.authors import Author, brake_author
from libs.policy.kinds.strategy import CordonedNodes

_UPGRADED: Final = (
    "it counts as unavailable, is upgraded all the same, and stays cordoned",
    "they count as unavailable, are upgraded all the same, and stay cordoned",
)
"""What becomes of a node that others cordoned, and of several."""
_SKIPPED: Final = (
    "it counts as unavailable, and is skipped, as the strategy of its pool says",
    "they count as unavailable, and are skipped, as the strategy of their pool says",
)
_EITHER: Final = (
    "it counts as unavailable, or is skipped, as the policy says",
    "they count as unavailable, or are skipped, as the policy says",
)
_AT_REST: Final = (
    "it counts as unavailable, and no new pod gets its GPUs",
    "they count as unavailable, and no new pod gets their GPUs",
)
"""Of nodes that have nothing to be upgraded to."""


class StrategySpec(views.View, frozen=True, kw_only=True):
    pool: str = ""
    cordoned_nodes: str = CordonedNodes.UPGRADE.value


class Strategy(views.Object, frozen=True, kw_only=True):
    spec: StrategySpec = StrategySpec()


class _Cordon(NamedTuple):
    """A node that others cordoned, and what is said of it."""

    name: str
    pool: str
    text: str
    at_rest: bool


def pool_checks(
    rollouts: Sequence[Rollout],
    nodes: Sequence[CheckedNode],
    *,
    now: float,
    troubles: Mapping[str, str],
    skipping: Collection[str] | None,
) -> list[Check]:
    """Judge each pool, then the nodes whose drivers are in trouble, then those that people have or
    keep from it. `skipping` are the pools that skip cordoned nodes; None: not known.
    """
    ordered = sorted(nodes, key=lambda node: natural_order(node.metadata.name))
    rows = [fleet_node(each.metadata, cordoned=each.spec.unschedulable) for each in ordered]
    found: list[Check] = []
    told = set[str]()
    for rollout in sorted(rollouts, key=lambda each: natural_order(each.metadata.name)):
        of_pool = [row for row in rows if row.pool == rollout.metadata.name]
        stopped = _brake(rollout, of_pool, now) or _stop(rollout, of_pool)
        left = _left(rollout, of_pool)
        told |= {row.name for row in left}
        problems = [
            *_failures(rollout, of_pool),
            *stopped,
            *_threshold(rollout),
            *_left_out(rollout, left, now),
        ]
        found += problems or [ok(_about(rollout), _progress(rollout))]
    found += [
        warning(name, f"the {trouble}", f"`sluice why {name}`")
        for name, trouble in troubles.items()
    ]
    found += [
        warning(
            row.name,
            holder_text(row.held, now=now),
            _return(row.held.node, is_claim=row.held.waits),
        )
        for row in rows
        if row.held is not None and row.name not in told
    ]
    untold = [(node, row) for node, row in zip(ordered, rows, strict=True) if row.name not in told]
    cordons = list(_cordons(rollouts, untold, now))
    pools = {each.metadata.name for each in rollouts}
    kept = [(node, row) for node, row in untold if row.skipped and row.pool in pools]
    return [*found, *_cordon_checks(cordons, skipping), *_skip_check(kept, now)]


def skipping_pools(strategies: Iterable[Strategy]) -> frozenset[str]:
    """Return the pools that skip cordoned nodes; of several strategies the oldest applies."""
    by_pool: dict[str, Strategy] = {}
    for each in sorted(strategies, key=_age):
        by_pool.setdefault(each.spec.pool, each)
    skip = CordonedNodes.SKIP.value
    return frozenset(pool for pool, each in by_pool.items() if each.spec.cordoned_nodes == skip)


def _age(strategy: Strategy) -> tuple[str, str]:
    return strategy.metadata.creation_timestamp or "", strategy.metadata.name


def _about(rollout: Rollout) -> str:
    return f"pool {rollout.metadata.name}"


def _progress(rollout: Rollout) -> str:
    status = rollout.status
    in_flight = f", {len(status.in_flight)} in flight" if status.in_flight else ""
    return f"{status.phase.value}, {status.progress or '0/0'} nodes are done{in_flight}"


def _failures(rollout: Rollout, rows: Sequence[FleetNode]) -> Iterator[Check]:
    """Yield the halt with the nodes that failed, or the failures before one."""
    status, about = rollout.status, _about(rollout)
    failed = [row for row in rows if row.state == UpgradeState.UPGRADE_FAILED]
    look = "; ".join(f"`sluice why {row.name}`" for row in failed[:1])
    causes = f": {some(map(_cause, failed))}" if failed else ""
    record = status.targets.get(status.target)
    if status.phase is RolloutPhase.HALTED and record is not None:
        count = f"{len(record.failed)} of {plural(status.counts.total, 'node')} failed"
        if record.is_halted_by_vanished:
            count += f", {len(record.harmed) - len(record.failed)} vanished"
        found = f"halted: {count} on {status.version}, and no other starts on it{causes}"
        release = ending_of_halt(rollout.metadata.name, status)
        ends = f"`{release}`, or set another version" if release else "set another version"
        yield fault(about, found, f"{look}, then {ends}" if look else ends)
    elif failed:
        yield fault(about, f"{plural(len(failed), 'node')} failed{causes}", look)


def _threshold(rollout: Rollout) -> Iterator[Check]:
    """Warn of a threshold that no number of failures can reach."""
    status, counts = rollout.status, rollout.status.counts
    record, nodes = status.targets.get(status.target), counts.total - counts.skipped
    nodes -= counts.excluded
    if record is not None and 0 < nodes < record.threshold:
        found = (
            f"failureThreshold is {record.threshold}, and {plural(nodes, 'node')} can take part: a"
            " driver that fails on all of them is not halted"
        )
        yield warning(_about(rollout), found, "set a smaller one in its RolloutStrategy")


def _cause(row: FleetNode) -> str:
    cause = cause_text(row)
    return f"{row.name} ({cause})" if cause else row.name


def _brake(rollout: Rollout, rows: Sequence[FleetNode], now: float) -> list[Check]:
    brake, pool = rollout.spec.brake, rollout.metadata.name
    if brake is Brake.NONE:
        return []
    means = _means(rollout, [row for row in rows if row.in_flight])
    who = _signed(brake_author(rollout.metadata), now)
    found = f"{braked_state(brake)}{who}; {means}"
    return [warning(_about(rollout), found, f"`{resume_command(pool)}`")]


def _stop(rollout: Rollout, rows: Sequence[FleetNode]) -> list[Check]:
    """Return why no node starts, where it is neither a brake nor a halt."""
    status = rollout.status
    if not status.because or status.phase in (*IDLE_PHASES, RolloutPhase.HALTED):
        return []
    waiting = [row.name for row in rows if row.state == UpgradeState.UPGRADE_REQUIRED]
    remedy = f"`sluice why {waiting[0]}` says who can end it" if waiting else "`sluice status`"
    return [warning(_about(rollout), f"no node starts: {status.because}", remedy)]


def _left(rollout: Rollout, rows: Sequence[FleetNode]) -> list[FleetNode]:
    """Return the nodes that people keep from the driver of a rollout that is complete."""
    status = rollout.status
    if status.phase is not RolloutPhase.COMPLETE or not status.counts.skipped:
        return []
    return [
        row
        for row in rows
        if (row.skipped or _is_leased(row) or row.cordoned)
        and not (row.in_flight or is_done_for(row, status.target))
    ]


def _is_leased(row: FleetNode) -> bool:
    return row.held is not None and not row.held.waits


def _left_out(rollout: Rollout, left: Sequence[FleetNode], now: float) -> Iterator[Check]:
    """Yield which nodes a complete rollout left out, why, and how people end that."""
    if not left:
        return
    names = some(f"{row.name} ({_kept_out(row, now)})" for row in left)
    more = rollout.status.counts.skipped - len(left)
    names += f" and {more} more" if more > 0 else ""
    done = rollout.status.progress
    found = f"complete on {rollout.status.version}, {done} nodes are done, but for {names}"
    yield warning(_about(rollout), found, "; ".join(dict.fromkeys(map(_let_in, left[:3]))))


def _kept_out(row: FleetNode, now: float) -> str:
    """Return how people keep a node out of a rollout, in a few words."""
    leased = holder_text(row.held, now=now) if row.held is not None and _is_leased(row) else ""
    ways = ("skip label" if row.skipped else "", leased, "cordoned" if row.cordoned else "")
    return ", ".join(filter(None, ways))


def _let_in(row: FleetNode) -> str:
    """Return the commands that end it."""
    commands = (
        f"`sluice upgrade unskip {row.name}`" if row.skipped else "",
        f"`sluice lease return {row.name}`" if _is_leased(row) else "",
        f"`kubectl uncordon {row.name}`" if row.cordoned else "",
    )
    return ", ".join(filter(None, commands))


def _signed(author: Author | None, now: float) -> str:
    if author is None:
        return ""
    since = "" if author.at is None else f" for {duration(now - author.at)}"
    return f" by {author.name}{since}" + (f' ("{author.reason}")' if author.reason else "")


def _means(rollout: Rollout, in_flight: Sequence[FleetNode]) -> str:
    """Return what a brake does to the nodes in flight, and to those that would follow."""
    names, is_one = some(row.name for row in in_flight), len(in_flight) == 1
    if rollout.spec.brake is Brake.FREEZE and in_flight:
        cordoned = " cordoned" if all(row.cordoned for row in in_flight) else ""
        return f"{names} {'stays' if is_one else 'stay'}{cordoned}, in the middle of an operation"
    if in_flight:
        return f"{names} still {'finishes' if is_one else 'finish'}, and no other node starts"
    if rollout.status.phase in IDLE_PHASES:
        return "nothing is to be done now, and no later upgrade starts"
    return f"no node starts, {rollout.status.progress} are done"


def _return(node: str, *, is_claim: bool) -> str:
    use = "if nobody wants it any more" if is_claim else "if nobody works on it any more"
    return f"{use}: `sluice lease return {node}`"


def _cordons(
    rollouts: Iterable[Rollout], nodes: Iterable[tuple[CheckedNode, FleetNode]], now: float
) -> Iterator[_Cordon]:
    """Yield the nodes of pools that others cordoned."""
    statuses = {each.metadata.name: each.status for each in rollouts}
    for node, row in nodes:
        is_ours = row.in_flight or row.state == UpgradeState.UPGRADE_FAILED
        status = statuses.get(row.pool)
        if status is None or not row.cordoned or (is_ours and not row.was_cordoned):
            continue
        author = cordoned_by(node)
        if row.was_cordoned or author != SLUICE:
            before = " before its upgrade" if row.was_cordoned else ""
            who = "" if author == SLUICE else _signed(author, now)
            yield _Cordon(
                name=row.name,
                pool=row.pool,
                text=f"{row.name} cordoned{before}{who}",
                at_rest=status.phase in IDLE_PHASES or is_done_for(row, status.target),
            )


def _cordon_checks(cordons: Sequence[_Cordon], skipping: Collection[str] | None) -> Iterator[Check]:
    """Yield a check for all cordons that mean the same."""
    by_means: dict[tuple[str, str], list[_Cordon]] = {}
    for each in cordons:
        by_means.setdefault(_cordon_means(each, skipping), []).append(each)
    for means in (_UPGRADED, _SKIPPED, _EITHER, _AT_REST):
        if alike := by_means.get(means):
            yield warning(
                "cordons",
                f"{some(each.text for each in alike)}: {means[len(alike) > 1]}",
                f"if it may be used again: `kubectl uncordon {alike[0].name}`",
            )


def _cordon_means(cordon: _Cordon, skipping: Collection[str] | None) -> tuple[str, str]:
    """Return what a cordon means for its node, and in words for several."""
    if cordon.at_rest:
        return _AT_REST
    if skipping is None:
        return _EITHER
    return _SKIPPED if cordon.pool in skipping else _UPGRADED


def _skip_check(kept: Sequence[tuple[CheckedNode, FleetNode]], now: float) -> Iterator[Check]:
    """Yield which nodes have the skip label, and the command that removes it from those named."""
    if kept:
        names = " ".join(row.name for _, row in kept[:3])
        told = some(f"{row.name} skipped{_signed(skipped_by(node), now)}" for node, row in kept)
        yield warning(
            "skip labels",
            f"{told}: no upgrade starts on {'it' if len(kept) == 1 else 'them'}",
            f"if upgrades may start again: `sluice upgrade unskip {names}`",
        )
