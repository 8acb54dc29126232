"""Where explorations begin: a pool with one node or a few, and what may happen on the way."""

from collections.abc import Sequence

from libs.forecast.stage import gpu_health
from libs.forecast.stage.objects import GpuCure, GpuFailure
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import PodDeletion, UpgradePolicy
from libs.policy.wanted import InstallMethod
from libs.rollout.views.pool import PoolView
from libs.testing.stage import SimulatedStage, StageNodeSpec, Tenant, UserActions
from libs.testing.stage.worlds import SteadyWorld
from tests.component.rollout.simulation.disturbances import CLOCKS_AHEAD, VALUES, Disturbance
from tests.component.rollout.simulation.policies import (
    FROM_TEMPLATE,
    OTHERS_TAINT,
    TARGETS,
    builds_of,
    proven_before,
    with_images,
    with_startup_taint,
)
from tests.component.rollout.simulation.scenario import KERNEL, START

FAULTS = (
    "crash_driver",
    "reboot",
    "reboot_as_other_variant",
    "reboot_cut_off",
    "power_off",
    "disconnect_kubelet",
    "disconnect_agents",
    "stop_agent",
    "hang_agent",
    "restart_agent",
    "lose_agent_journal",
    "miss_pokes",
    "elect_leader",
    "stop_bus",
    "freeze_view",
    "mute_source",
)

ACTS = (
    "cordon",
    "uncordon",
    "set_state",
    "set_driver_label",
    "set_record",
    "set_lease",
    "set_request",
    "set_operator_request",
    "set_safe_load",
    "set_skip",
    "set_keep_cordoned",
    "delete_driver_pod",
    "delete_node",
    "remove_node",
    "move_to_next_pool",
    "exclude",
    "add_tenant",
    "add_host_process",
    "set_brake",
    "release",
    "change_target",
    "flap_target",
    "switch_off",
    "delete_policy",
    "delete_rollout",
    "foreign_operator",
)
"""Acts of users: the rows of docs/states.md#people."""


def upgrade() -> SimulatedStage:
    """Return a stage with a busy node that runs A, in a pool that wants B."""
    tenants = (Tenant(name="work", is_recreated=True),)
    return _stage(
        StageNodeSpec(
            name="n1", pool="p", variant="u24", kernel=KERNEL, target="A", tenants=tenants
        )
    )


def in_place() -> SimulatedStage:
    """Return a stage with a node in place."""
    return _stage(StageNodeSpec(name="n1", pool="p", variant="u24", kernel=KERNEL, target="B"))


def reload() -> SimulatedStage:
    """Return a stage with a node in place, whose driver a person wants installed again."""
    stage = in_place()
    UserActions(stage.state).set_operator_request("n1")
    return stage


def upgrade_with_image() -> SimulatedStage:
    """Return a stage like `upgrade`, with an image that is brought before the node is drained."""
    tenants = (Tenant(name="work", is_recreated=True),)
    node = StageNodeSpec(
        name="n1", pool="p", variant="u24", kernel=KERNEL, target="A", tenants=tenants
    )
    return _stage(node, has_image=True)


def divide() -> SimulatedStage:
    """Return a stage with a busy node in place, whose GPUs are to be divided."""
    tenants = (Tenant(name="work", is_recreated=True),)
    node = StageNodeSpec(
        name="n1", pool="p", variant="u24", kernel=KERNEL, target="B", tenants=tenants,
        mig_config="seven",
    )  # fmt: skip
    return _stage(node)


def divide_and_upgrade() -> SimulatedStage:
    """Return a stage with a busy node that runs A, whose pool wants B and its GPUs divided."""
    tenants = (Tenant(name="work", is_recreated=True),)
    node = StageNodeSpec(
        name="n1", pool="p", variant="u24", kernel=KERNEL, target="A", tenants=tenants,
        mig_config="seven",
    )  # fmt: skip
    return _stage(node)


def upgrade_with_failed_gpu() -> SimulatedStage:
    """Return a stage like `upgrade`, with a GPU that another load of the driver cures."""
    return _with_failed_gpus(gpu_health.failure(0, GpuCure.RELOAD))


def upgrade_with_broken_gpus() -> SimulatedStage:
    """Return a stage like `upgrade`, with two GPUs that no driver cures."""
    cures = (GpuCure.REPAIR, GpuCure.REBOOT)
    return _with_failed_gpus(*map(gpu_health.failure, range(2), cures))


def _with_failed_gpus(*failures: GpuFailure) -> SimulatedStage:
    node = StageNodeSpec(
        name="n1", pool="p", variant="u24", kernel=KERNEL, target="A", failed_gpus=failures
    )
    return _stage(node)


def bring_up() -> SimulatedStage:
    """Return a stage with a bare node that joins."""
    return _stage(StageNodeSpec(name="n1", pool="p", variant="u24", kernel=KERNEL))


def bring_up_tainted() -> SimulatedStage:
    """Return a stage with a bare node that joins with startup taints, and a taint of others."""
    taints = (*FROM_TEMPLATE, OTHERS_TAINT)
    node = StageNodeSpec(name="n1", pool="p", variant="u24", kernel=KERNEL, taints=taints)
    return _stage(node, has_startup_taint=True)


def _stage(
    node: StageNodeSpec, *, has_image: bool = False, has_startup_taint: bool = False
) -> SimulatedStage:
    method = InstallMethod.CONTAINER
    pool = PoolView(
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
        strategy=StrategySpec(pool="p"),
    )
    pool = with_images(pool) if has_image else pool
    pool = with_startup_taint(pool) if has_startup_taint else pool
    return SimulatedStage([proven_before(pool, (node,))], (node,), world=SteadyWorld(), start=START)


_CLOCKS = ("0", str(min(CLOCKS_AHEAD)), str(max(CLOCKS_AHEAD)))
"""By how much the clock of a new leader is ahead: a simulation draws that from its time instead."""


def disturbances(names: Sequence[str]) -> tuple[Disturbance, ...]:
    """Return one disturbance for each name and value."""
    return tuple(
        Disturbance(at=0.0, what=name, node="n1", pool="p", value=value, seconds=45.0)
        for name in names
        for value in dict.fromkeys(_CLOCKS if name == "elect_leader" else VALUES.get(name, ("",)))
    )
