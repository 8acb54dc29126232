"""What keeps a policy from being ready: operand, node and cause, each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from libs.contracts.node import UpgradeState
from libs.policy.digest import driver_label, target_digest
from libs.policy.observed import Observation, ObservedNode
from libs.policy.pools import Pool
from libs.policy.render.rendered import Operand, RenderedObject, RenderResult
from libs.policy.variants import NodeVariants, Variant
from libs.policy.wanted import InstallMethod

MAX_LISTED = 5
"""So many are named; the others are counted."""


class ReadinessProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be."""

    operand: Operand
    node: str = ""
    """Empty: it concerns no node by itself."""
    cause: str
    failed: bool = False
    """It will not mend itself."""

    def __str__(self) -> str:
        where = f" on {self.node}" if self.node else ""
        return f"{self.operand.value}{where}: {self.cause}"


def summarize(lacks: Sequence[ReadinessProblem]) -> str:
    """The first of them in words, and how many more there are."""
    words = [str(lack) for lack in lacks[:MAX_LISTED]]
    more = len(lacks) - len(words)
    return "; ".join([*words, f"and {more} more"] if more else words)


def agent_problems(rendering: RenderResult, seen: Observation) -> list[ReadinessProblem]:
    """What is wrong with the operands that the cluster has once."""
    shared = [made for made in rendering.objects if not made.pool]
    return [lack for made in shared for lack in _object(made, seen)]


def pool_problems(
    pool: Pool, placement: NodeVariants, rendering: RenderResult, seen: Observation
) -> list[ReadinessProblem]:
    """What is wrong with the driver of a pool, the nodes with it last."""
    lacks = [
        ReadinessProblem(operand=Operand.DRIVER, cause=str(one.finding), failed=True)
        for one in rendering.failures
        if one.pool == pool.key
    ]
    own = [made for made in rendering.objects if made.pool == pool.key]
    lacks += [lack for made in own for lack in _object(made, seen)]
    named = {lack.node for lack in lacks if lack.node}
    wanted = _labels(pool, placement)
    for name in pool.nodes:
        node = seen.nodes.get(name, ObservedNode())
        failed = node.state == UpgradeState.UPGRADE_FAILED
        if node.skipped or (name in named and not failed):
            continue
        if name in placement.unknown:
            missing = placement.unknown[name]
            cause = f"its system is not known: it has no label {missing}"
            lacks.append(ReadinessProblem(operand=Operand.DRIVER, node=name, cause=cause))
            continue
        lack = _node(name, node, wanted.get(placement.nodes[name], ""))
        lacks += [lack] if lack else []
    if lacks and pool.held:
        words = "; ".join(str(finding) for finding in pool.held)
        cause = f"nothing new starts until somebody mends this: {words}"
        lacks.insert(0, ReadinessProblem(operand=Operand.DRIVER, cause=cause, failed=True))
    return lacks


def ready_node_count(pool: Pool, lacks: Iterable[ReadinessProblem]) -> int:
    """How many nodes of a pool are where it wants them, of which these are the lacks."""
    return len(pool.nodes) - len({lack.node for lack in lacks if lack.node})


def _labels(pool: Pool, placement: NodeVariants) -> Mapping[Variant, str]:
    """The label of each variant; none where a driver is only validated."""
    if pool.driver.method is InstallMethod.PRE_INSTALLED:
        return {}
    wanted = target_digest(pool.driver)
    return {
        variant: driver_label(pool.uid, wanted, variant) for variant in placement.pools[pool.key]
    }


def _node(name: str, node: ObservedNode, label: str) -> ReadinessProblem | None:
    failed = node.state == UpgradeState.UPGRADE_FAILED
    if node.state == UpgradeState.UPGRADE_DONE and (not label or node.label == label):
        return None
    cause = node.cause or node.state or "no driver has been brought up yet"
    if node.state == UpgradeState.UPGRADE_DONE and not node.cause:
        cause = "has another driver than its policy wants"
    return ReadinessProblem(operand=Operand.DRIVER, node=name, cause=cause, failed=failed)


def _object(made: RenderedObject, seen: Observation) -> Iterator[ReadinessProblem]:
    key = f"{made.kind}/{made.name}"
    if key in seen.refused:
        cause = f"the API server refused {key}: {seen.refused[key]}"
        yield ReadinessProblem(operand=made.operand, cause=cause, failed=True)
        return
    if made.kind != "DaemonSet":
        return
    there = seen.daemon_sets.get(made.name)
    if there is None:
        yield ReadinessProblem(operand=made.operand, cause=f"{key} is not there yet")
        return
    if there.observed_generation < there.generation:
        cause = f"{key} has changed, and its controller has not seen it yet"
        yield ReadinessProblem(operand=made.operand, cause=cause)
        return
    known = [one for one in seen.pod_problems if one.daemon_set == made.name]
    yield from (
        ReadinessProblem(operand=made.operand, node=one.node, cause=one.cause) for one in known
    )
    missing = there.desired - there.available
    if missing > len(known):
        cause = f"{missing} of {there.desired} pods of {key} are not available"
        yield ReadinessProblem(operand=made.operand, cause=cause)
    rolling = made.object["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    if rolling and there.updated < there.desired:
        old = there.desired - there.updated
        cause = f"{old} of {there.desired} pods of {key} are of an older version"
        yield ReadinessProblem(operand=made.operand, cause=cause)
