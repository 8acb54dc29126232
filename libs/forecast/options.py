"""Options of a plan that differ from the current policy, applied to a fleet."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from libs.contracts.queries import PlanLimits
from libs.policy.shapes import IntOrString, is_int_or_percent
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build, PoolView


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options to change; None or empty: unchanged."""

    target: str = ""
    version: str = ""
    """Of the driver that is the target, for people."""
    builds: Mapping[str, Build] = {}
    """Builds of the target by variant, if the pool does not have them yet."""
    max_unavailable: IntOrString | None = None
    max_parallel: int | None = None

    def __post_init__(self) -> None:
        amount = self.max_unavailable
        if amount is not None and not is_int_or_percent(amount):
            raise ValueError(
                f"maxUnavailable {amount!r} is invalid: use a number from 0 up, or a percentage"
            )
        if self.max_parallel is not None and self.max_parallel < 0:
            raise ValueError(f"maxParallelUpgrades {self.max_parallel} is invalid: use 0 or more")


def apply_options(fleet: Fleet, pool: str, options: PlanOptions) -> Fleet:
    """Return the pool and its nodes, sorted by name, with the options applied."""
    view = fleet.pools.get(pool)
    if view is None:
        known = ", ".join(sorted(fleet.pools)) or "none"
        raise LookupError(f"pool {pool!r} not found; known pools: {known}")
    nodes = {name: node for name, node in sorted(fleet.nodes.items()) if _is_concerned(node, pool)}
    keys = {key for node in nodes.values() for key in _pools_of(node)} | {pool}
    pools = {key: other for key, other in sorted(fleet.pools.items()) if key in keys}
    return replace(fleet, pools={**pools, pool: _apply(view, options)}, nodes=nodes)


def limits_of(pool: PoolView) -> PlanLimits:
    """Return the limits by which the pool is upgraded."""
    upgrade = pool.upgrade
    return PlanLimits(
        max_unavailable=str(upgrade.max_unavailable), max_parallel=upgrade.max_parallel_upgrades
    )


def _apply(pool: PoolView, options: PlanOptions) -> PoolView:
    upgrade = pool.upgrade
    if options.max_unavailable is not None:
        upgrade = replace(upgrade, max_unavailable=options.max_unavailable)
    if options.max_parallel is not None:
        upgrade = replace(upgrade, max_parallel_upgrades=options.max_parallel)
    target = options.target or pool.target
    version = options.version if options.target else pool.version
    builds = pool.builds
    if options.builds:
        builds = {**builds, target: {**builds.get(target, {}), **options.builds}}
    return replace(pool, upgrade=upgrade, target=target, version=version, builds=builds)


def _is_concerned(node: NodeView, pool: str) -> bool:
    return pool in _pools_of(node)


def _pools_of(node: NodeView) -> tuple[str, ...]:
    record = node.current_record
    return (node.pool,) if record is None else (node.pool, record.pool)
