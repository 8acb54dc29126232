"""Where explorations begin: a pool with one node or a few, and what may come between."""

from collections.abc import Sequence

from libs.forecast.stage import Stage, StageNodeSpec, Tenant
from libs.forecast.world import SteadyWorld
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import PodDeletion, UpgradePolicy
from libs.policy.wanted import InstallMethod
from libs.rollout.views.pool import PoolView
from tests.component.rollout.simulation.disturbances import VALUES, Disturbance
from tests.component.rollout.simulation.policies import TARGETS, builds_of, proven_before

KERNEL = "6.8"
START = 1_000_000.0
NODE = "n1"

FAULTS = (
    "crashes",
    "reboots",
    "reboots_as_other_variant",
    "loses_power",
    "kubelet_is_cut_off",
    "agents_are_cut_off",
    "agent_dies",
    "agent_hangs",
    "agent_restarts",
    "agent_forgets",
    "misses_pokes",
    "another_leads",
    "bus_is_away",
    "view_stands_still",
    "source_is_quiet",
)
"""What breaks."""

ACTS = (
    "cordons",
    "uncordons",
    "sets_state",
    "sets_driver_label",
    "sets_record",
    "sets_lease",
    "requests",
    "asks_as_before",
    "asks_for_safe_load",
    "skips",
    "keeps_cordoned",
    "deletes_driver_pod",
    "deletes_node",
    "node_leaves_for_good",
    "moves",
    "excludes",
    "brings_work",
    "logs_in",
    "brakes",
    "releases",
    "wants",
    "flaps",
    "switches_off",
    "deletes_policy",
    "loses_rollout",
    "operator_comes",
)
"""What people do: the rows of docs/states.md#people."""


def _pool(
    method: InstallMethod, strategy: StrategySpec, nodes: tuple[StageNodeSpec, ...]
) -> PoolView:
    made = PoolView(
        key="p",
        uid="pool-p",
        target="B",
        method=method,
        builds={target: builds_of("p", target, method) for target in TARGETS},
        upgrade=UpgradePolicy(
            auto_upgrade=True,
            max_parallel_upgrades=0,
            max_unavailable="100%",
            pod_deletion=PodDeletion(force=True, delete_empty_dir=True, timeout_seconds=300),
        ),
        strategy=strategy,
    )
    return proven_before(made, nodes)


def upgrade(
    *, busy: bool = True, method: InstallMethod = InstallMethod.CONTAINER, nodes: int = 1
) -> Stage:
    """Nodes with an old driver, whose pool wants another."""
    plans = tuple(
        StageNodeSpec(
            name=f"n{number}",
            pool="p",
            variant="u24",
            kernel=KERNEL,
            target="A",
            tenants=(Tenant(name="work", is_recreated=True),) if busy else (),
        )
        for number in range(1, nodes + 1)
    )
    return Stage(
        [_pool(method, StrategySpec(pool="p"), plans)], plans, world=SteadyWorld(), start=START
    )


def bring_up() -> Stage:
    """A bare node joins."""
    plans = (StageNodeSpec(name=NODE, pool="p", variant="u24", kernel=KERNEL),)
    return Stage(
        [_pool(InstallMethod.CONTAINER, StrategySpec(pool="p"), plans)],
        plans,
        world=SteadyWorld(),
        start=START,
    )


def each(names: Sequence[str]) -> tuple[Disturbance, ...]:
    """One act of each kind, with each of its values."""
    return tuple(
        Disturbance(at=0.0, what=name, node=NODE, pool="p", value=value, seconds=45.0)
        for name in names
        for value in dict.fromkeys(VALUES.get(name, ("",)))
    )
