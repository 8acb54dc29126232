"""Observations of operands and nodes, and the problems that keep a policy from being ready."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from libs.contracts.node import UpgradeState
from libs.policy.artefacts import NO_ARTEFACTS, Artefacts, wanted_artefact
from libs.policy.digest import driver_identity, target_digest
from libs.policy.pool import Pool, Pools
from libs.policy.progress import ObservedRollout, PoolProgress
from libs.policy.render.rendered import Operand, RenderedObject, RenderResult
from libs.policy.variants import NodeVariants, Variant
from libs.policy.wanted import InstallMethod


class ObservedDaemonSet(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a DaemonSet, as its controller reports it."""

    generation: int = 1
    observed_generation: int = 1
    desired: int = 0
    updated: int = 0
    available: int = 0


class ObservedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a pool, from its labels and its record."""

    state: str = ""
    """The value of the public upgrade label."""
    label: str = ""
    """The value of the label `sluice.dev/driver`."""
    cause: str = ""
    """Why the node is not in its wanted state."""
    skipped: bool = False
    """Whether a person excluded the node."""
    lacks_gpus: bool = False
    """Whether pods get no GPU there, although the device plugin is to run on the node."""


class PodProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a DaemonSet's pod on a node."""

    daemon_set: str
    node: str
    cause: str


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state from which statuses are computed, at one moment."""

    daemon_sets: Mapping[str, ObservedDaemonSet] = {}
    """Existing DaemonSets, by name."""
    nodes: Mapping[str, ObservedNode] = {}
    """By name."""
    pod_problems: tuple[PodProblem, ...] = ()
    refused: Mapping[str, str] = {}
    """Why the API server refused a rendered object, by kind and name (`DaemonSet/a`)."""
    artefacts: Artefacts = NO_ARTEFACTS
    """Of host drivers."""
    rollouts: Mapping[str, ObservedRollout] = {}
    """By the key of their pool."""
    feature_labels: bool = True
    """Whether any node has labels of Node Feature Discovery."""


class ReadinessProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why an operand is not ready."""

    operand: Operand
    node: str = ""
    """Empty if no single node is affected."""
    cause: str
    failed: bool = False
    """Whether a person has to fix it."""

    def __str__(self) -> str:
        location = f" on {self.node}" if self.node else ""
        return f"{self.operand.value}{location}: {self.cause}"


def agent_problems(rendering: RenderResult, observed: Observation) -> list[ReadinessProblem]:
    """Return the problems of the operands that no pool owns."""
    shared = [rendered for rendered in rendering.objects if not rendered.pool]
    return [problem for rendered in shared for problem in _object_problems(rendered, observed)]


def offer_problems(pools: Pools, observed: Observation) -> Iterator[ReadinessProblem]:
    """Yield the nodes whose driver is in use, where a pod that asks for a GPU gets none."""
    for pool in pools.pools:
        for name in pool.nodes:
            node = observed.nodes.get(name, ObservedNode())
            is_counted = node.state == UpgradeState.UPGRADE_DONE and not node.skipped
            if is_counted and node.lacks_gpus:
                cause = (
                    "a pod that asks for a GPU gets none, because the kubelet has none to allocate:"
                    " the device plugin offers none, or all are failed"
                )
                yield ReadinessProblem(operand=Operand.DEVICE_PLUGIN, node=name, cause=cause)


def pool_problems(
    pool: Pool, variants: NodeVariants, rendering: RenderResult, observed: Observation
) -> list[ReadinessProblem]:
    """Return the problems of a pool's driver; problems of single nodes come last."""
    problems = [
        ReadinessProblem(operand=Operand.DRIVER, cause=str(failure.finding), failed=True)
        for failure in rendering.failures
        if failure.pool == pool.key
    ]
    own = [rendered for rendered in rendering.objects if rendered.pool == pool.key]
    problems += [problem for rendered in own for problem in _object_problems(rendered, observed)]
    reported = {problem.node for problem in problems if problem.node}
    wanted = _driver_labels(pool, variants, observed.artefacts)
    for name in pool.nodes:
        node = observed.nodes.get(name, ObservedNode())
        failed = node.state == UpgradeState.UPGRADE_FAILED
        if node.skipped or (name in reported and not failed):
            continue
        if _keeps_driver(pool, node):
            continue
        if name in variants.unknown:
            missing = variants.unknown[name]
            cause = f"its operating system is unknown: label {missing} is missing"
            problems.append(ReadinessProblem(operand=Operand.DRIVER, node=name, cause=cause))
            continue
        variant = variants.nodes[name]
        problem = _node_problem(
            name,
            node,
            label=wanted.get(variant, ""),
            lacks=_lacking(pool, variant, observed.artefacts),
        )
        if problem:
            problems.append(problem)
    if problems and pool.held:
        errors = "; ".join(str(finding) for finding in pool.held)
        cause = f"nothing new starts until this is fixed: {errors}"
        problems.insert(0, ReadinessProblem(operand=Operand.DRIVER, cause=cause, failed=True))
    return problems


def kept_drivers(pool: Pool, variants: NodeVariants, observed: Observation) -> Sequence[str]:
    """Return the nodes that keep another driver than is wanted, because `autoUpgrade` is off."""
    if pool.upgrade.auto_upgrade:
        return ()
    wanted = _driver_labels(pool, variants, observed.artefacts)
    found = ((name, observed.nodes.get(name, ObservedNode())) for name in pool.nodes)
    return [
        name
        for name, node in found
        if _keeps_driver(pool, node)
        and not node.skipped
        and name in variants.nodes
        and wanted.get(variants.nodes[name], node.label) != node.label
    ]


def pool_progress(pool: Pool, observed: Observation) -> PoolProgress:
    target = target_digest(pool.driver, observed.artefacts)
    return PoolProgress(pool, target, observed.rollouts.get(pool.key))


def _keeps_driver(pool: Pool, node: ObservedNode) -> bool:
    """Whether the node is done, and nothing but a person changes its driver: whoever switched
    `autoUpgrade` off asked for that, so it is no problem of the policy."""
    return node.state == UpgradeState.UPGRADE_DONE and not pool.upgrade.auto_upgrade


def _driver_labels(
    pool: Pool, variants: NodeVariants, artefacts: Artefacts
) -> Mapping[Variant, str]:
    """Return the wanted driver label of each variant; none for pre-installed drivers."""
    if pool.driver.method is InstallMethod.PRE_INSTALLED:
        return {}
    return {
        variant: driver_identity(pool.key, pool.driver, variant, artefacts).label
        for variant in variants.pools[pool.key]
    }


def _lacking(pool: Pool, variant: Variant, artefacts: Artefacts) -> str:
    """Return why no node of this variant gets its driver; empty if they do."""
    if pool.driver.method is not InstallMethod.HOST:
        return ""
    found = wanted_artefact(artefacts, pool.driver, variant)
    return found if isinstance(found, str) else ""


def _node_problem(
    name: str, node: ObservedNode, *, label: str, lacks: str
) -> ReadinessProblem | None:
    failed = node.state == UpgradeState.UPGRADE_FAILED
    if node.state == UpgradeState.UPGRADE_DONE and (not label or node.label == label):
        return None
    cause = node.cause or lacks or node.state or "no driver is running yet"
    if node.state == UpgradeState.UPGRADE_DONE and not (node.cause or lacks):
        cause = "has a different driver than its policy wants"
    return ReadinessProblem(operand=Operand.DRIVER, node=name, cause=cause, failed=failed)


def _object_problems(rendered: RenderedObject, observed: Observation) -> Iterator[ReadinessProblem]:
    key = f"{rendered.kind}/{rendered.name}"
    if key in observed.refused:
        cause = f"the API server refused {key}: {observed.refused[key]}"
        yield ReadinessProblem(operand=rendered.operand, cause=cause, failed=True)
        return
    if rendered.kind != "DaemonSet":
        return
    daemon_set = observed.daemon_sets.get(rendered.name)
    if daemon_set is None:
        yield ReadinessProblem(operand=rendered.operand, cause=f"{key} does not exist yet")
        return
    if daemon_set.observed_generation < daemon_set.generation:
        cause = f"{key} has changed, and its controller has not observed the change yet"
        yield ReadinessProblem(operand=rendered.operand, cause=cause)
        return
    known = [problem for problem in observed.pod_problems if problem.daemon_set == rendered.name]
    yield from (
        ReadinessProblem(operand=rendered.operand, node=problem.node, cause=problem.cause)
        for problem in known
    )
    unavailable = daemon_set.desired - daemon_set.available
    if unavailable > len(known):
        cause = f"{unavailable} of {daemon_set.desired} pods of {key} are not available"
        yield ReadinessProblem(operand=rendered.operand, cause=cause)
    rolling = rendered.object["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    if rolling and daemon_set.updated < daemon_set.desired:
        old = daemon_set.desired - daemon_set.updated
        cause = f"{old} of {daemon_set.desired} pods of {key} run an older version"
        yield ReadinessProblem(operand=rendered.operand, cause=cause)
