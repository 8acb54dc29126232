"""The condition NextKernel: nodes that may have no driver after their next boot. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from libs.contracts.facts import NextKernel
from libs.policy.next_kernel import next_kernel_problem
from libs.policy.owners import DEPLOY_DRIVER, DEPLOY_OPERANDS
from libs.policy.pool import Pools
from libs.policy.render.driver import daemon_set_name
from libs.policy.status import PolicyStatus, StatusCondition
from services.driver.cluster.diagnosed import nodes_of, some_nodes
from services.driver.cluster.resources import Node

NEXT_KERNEL: Final = "NextKernel"
_UNWANTED: Final = (DEPLOY_DRIVER, DEPLOY_OPERANDS)


def next_kernel_problems(
    pools: Pools,
    nodes: Iterable[Node],
    kernels: Mapping[tuple[str, str], NextKernel],
    daemon_sets: Collection[str],
) -> dict[str, str]:
    """Return by name of node why it may have no driver after its next boot.

    `kernels` are by uid and boot of nodes, `daemon_sets` are names.
    """
    of_pool = {pool.key: pool for pool in pools.pools}
    problems: dict[str, str] = {}
    for node in nodes:
        name, labels = node.metadata.name, node.metadata.labels
        kernel = kernels.get((node.metadata.uid, node.boot_id))
        pool = of_pool.get(pools.owners.get(name, ""))
        if kernel is None or pool is None or "false" in map(labels.get, _UNWANTED):
            continue
        problem = next_kernel_problem(
            kernel,
            pool=pool.key,
            driver=pool.driver,
            labels=labels,
            has_daemon_set=lambda label: daemon_set_name(label) in daemon_sets,
        )
        if problem:
            problems[name] = problem
    return problems


def next_kernel_condition(
    status: PolicyStatus, pools: Pools, problems: Mapping[str, str]
) -> StatusCondition | None:
    """Name the policy's nodes with such a problem."""
    nodes = nodes_of(status, pools, {name: (problem,) for name, problem in problems.items()})
    if not nodes:
        return None
    return StatusCondition(
        type=NEXT_KERNEL,
        status=True,
        reason="NoDriver",
        message="; ".join(f"{some_nodes(names)}: {problem}" for problem, names in nodes.items()),
    )
