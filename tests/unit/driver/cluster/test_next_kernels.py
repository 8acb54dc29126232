"""The condition NextKernel of policies."""

from libs.contracts.facts import NextKernel
from libs.policy.owners import DEPLOY_DRIVER
from services.driver.cluster.next_kernels import NEXT_KERNEL
from services.driver.cluster.plan import OperandPlan
from tests.unit.driver.cluster.builders import (
    POLICY_KEY,
    driver_of,
    live_object,
    node,
    plan,
)
from tests.unit.policy.situations import DRIVER, cluster_policy

KERNEL = NextKernel(release="5.15.0-140-generic")
PRECOMPILED = cluster_policy(driver={**DRIVER, "usePrecompiled": True})


def plan_of(*names: str, boot: str = "", **labels: str) -> OperandPlan:
    return plan(
        PRECOMPILED,
        nodes=tuple(node(name, **labels) for name in names),
        next_kernels={(f"uid-{name}", boot): KERNEL for name in names},
    )


def messages(operands: OperandPlan) -> list[str]:
    conditions = operands.statuses[POLICY_KEY].conditions
    return [each.message for each in conditions if each.type == NEXT_KERNEL]


def test_nodes_without_a_driver_for_their_next_kernel_are_named() -> None:
    operands = plan_of("a", "b", "c", "d", "e")
    (message,) = messages(operands)
    assert message.startswith("a, b, c and 2 more: the next boot runs kernel 5.15.0-140-generic")
    assert operands.without_next_driver == 5


def test_a_daemon_set_for_that_kernel_is_enough() -> None:
    """Another node runs it already, so there is one."""
    kernel = "feature.node.kubernetes.io/kernel-version.full"
    rebooted = node("b", **{kernel: KERNEL.release})
    rendered = driver_of(plan(PRECOMPILED, nodes=(rebooted,)))
    operands = plan(
        PRECOMPILED,
        nodes=(node("a"), rebooted),
        daemon_sets=(live_object(rendered.object),),
        next_kernels={("uid-a", ""): KERNEL},
    )
    assert (messages(operands), operands.without_next_driver) == ([], 0)


def test_reports_of_another_boot_and_nodes_without_a_driver_do_not_count() -> None:
    for operands in (plan_of("a", boot="before"), plan_of("a", **{DEPLOY_DRIVER: "false"})):
        assert (messages(operands), operands.without_next_driver) == ([], 0)
