"""All operands that pools want, as plain objects, in an order that stays.

Driver DaemonSets belong to pools and outlive them; agents and RuntimeClasses are there once. What
is switched off is not rendered; what is wanted and cannot be built is said.
"""

from collections.abc import Iterator
from typing import Final

from libs.policy.kinds.agents import MigSection, MigStrategy
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY, ClusterPolicy, ClusterPolicySpec
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY, GpuClusterPolicy
from libs.policy.pools import Pools
from libs.policy.render.agent_pods import runtime_class
from libs.policy.render.agents import render_agents
from libs.policy.render.driver import render_driver, startup_probe_script
from libs.policy.render.files import ConfigMaps
from libs.policy.render.rendered import (
    MANAGED_BY,
    Operand,
    RenderedObject,
    RenderFailure,
    RenderResult,
)
from libs.policy.render.settings import RenderSettings
from libs.policy.variants import NodeVariants
from libs.policy.wanted import InstallMethod, operands_of

_ORDER: Final = {operand: at for at, operand in enumerate(Operand)}
_UNSAID: Final = ClusterPolicy(spec=ClusterPolicySpec(mig=MigSection(strategy=MigStrategy.SINGLE)))
"""What agents are told where no ClusterPolicy says it."""


def render_operands(
    pools: Pools, placement: NodeVariants, settings: RenderSettings, *, config_maps: ConfigMaps
) -> RenderResult:
    """Everything that is wanted. `config_maps` are those of the operands' namespace, with their
    keys, as far as policies name them.
    """
    held = _held(pools)
    objects: list[RenderedObject] = [] if held else list(_common(pools, settings))
    unrendered: list[RenderFailure] = []
    for pool in pools.pools:
        if pool.held or pool.driver.method is not InstallMethod.CONTAINER:
            continue
        for variant in placement.pools[pool.key]:
            made = render_driver(pool, variant, settings, config_maps)
            if isinstance(made, RenderedObject):
                objects.append(made)
            else:
                unrendered.append(made)
    # Drivers outlive their pools, and start again: what they mount stays, whoever wants one now.
    objects.append(startup_probe_script(settings))
    objects.sort(key=lambda made: (_ORDER[made.operand], made.kind, made.name))
    return RenderResult(objects=tuple(objects), failures=tuple(unrendered), is_held=held)


def _held(pools: Pools) -> bool:
    """Whether the policy of the whole cluster says what cannot be carried out."""
    if pools.cluster is None:
        return False
    of_gpus = isinstance(pools.cluster, GpuClusterPolicy)
    known = ((GPU_CLUSTER_POLICY if of_gpus else CLUSTER_POLICY).name, pools.cluster.metadata.name)
    return any(told.errors for told in pools.verdicts if (told.kind, told.name) == known)


def _common(pools: Pools, settings: RenderSettings) -> Iterator[RenderedObject]:
    """What the cluster has once; where no policy says something, as it is by default."""
    cluster = pools.cluster
    policy = cluster if isinstance(cluster, ClusterPolicy) else _UNSAID
    yield from _runtime_classes(policy)
    yield from render_agents(policy, operands_of(cluster), settings)


def _runtime_classes(policy: ClusterPolicy) -> Iterator[RenderedObject]:
    names = {runtime_class(policy)}
    if policy.spec.cdi.enabled:
        names |= {"nvidia-cdi", "nvidia-legacy"}
    for name in sorted(names):
        made = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {
                "name": name,
                "labels": {
                    "app.kubernetes.io/component": "gpu-operator",
                    "app.kubernetes.io/managed-by": MANAGED_BY,
                },
            },
            "handler": name,
        }
        yield RenderedObject(operand=Operand.PREREQUISITES, object=made)
