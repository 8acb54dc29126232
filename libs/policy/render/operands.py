"""Render all operands of all pools in a stable order.

Each driver DaemonSet belongs to a pool; agents and RuntimeClasses exist once per cluster. Disabled
operands are not rendered; drivers that cannot be rendered are returned as failures.
"""

from collections.abc import Iterator
from typing import Final

from libs.policy.kinds.agents import MigSection, MigStrategy
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY, ClusterPolicy, ClusterPolicySpec
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY, GpuClusterPolicy
from libs.policy.pool import Pools
from libs.policy.render.agent_pods import runtime_class
from libs.policy.render.agents import render_agents
from libs.policy.render.driver import ConfigMaps, render_driver, startup_probe_script
from libs.policy.render.rendered import (
    MANAGED_BY,
    Operand,
    RenderedObject,
    RenderFailure,
    RenderResult,
    RenderSettings,
)
from libs.policy.variants import NodeVariants
from libs.policy.wanted import InstallMethod, operands_of

_ORDER: Final = {operand: index for index, operand in enumerate(Operand)}
_DEFAULT_POLICY: Final = ClusterPolicy(
    spec=ClusterPolicySpec(mig=MigSection(strategy=MigStrategy.SINGLE))
)
"""The settings of agents of a GPUClusterPolicy."""


def render_operands(
    pools: Pools, placement: NodeVariants, settings: RenderSettings, *, config_maps: ConfigMaps
) -> RenderResult:
    """Render all wanted operands.

    `config_maps` are the ConfigMaps of the operands' namespace that policies name.
    """
    held = _is_held(pools)
    objects: list[RenderedObject] = [] if held else list(_cluster_operands(pools, settings))
    failures: list[RenderFailure] = []
    for pool in pools.pools:
        if pool.held or pool.driver.method is not InstallMethod.CONTAINER:
            continue
        for variant in placement.pools[pool.key]:
            rendered = render_driver(pool, variant, settings, config_maps)
            if isinstance(rendered, RenderedObject):
                objects.append(rendered)
            else:
                failures.append(rendered)
    # Driver pods outlive their pools and may restart, so the ConfigMap that they mount stays.
    objects.append(startup_probe_script(settings))
    objects.sort(key=lambda rendered: (_ORDER[rendered.operand], rendered.kind, rendered.name))
    return RenderResult(
        objects=tuple(objects), failures=tuple(failures), cluster_operands_held=held
    )


def _is_held(pools: Pools) -> bool:
    """Report whether the cluster-wide policy is missing or has errors.

    It may have been deleted by mistake, so its operands stay as it rendered them.
    """
    if pools.cluster is None:
        return True
    is_gpu_policy = isinstance(pools.cluster, GpuClusterPolicy)
    kind = (GPU_CLUSTER_POLICY if is_gpu_policy else CLUSTER_POLICY).name
    key = (kind, pools.cluster.metadata.name)
    return any(verdict.errors for verdict in pools.verdicts if (verdict.kind, verdict.name) == key)


def _cluster_operands(pools: Pools, settings: RenderSettings) -> Iterator[RenderedObject]:
    """Render the operands that exist once per cluster."""
    cluster = pools.cluster
    policy = cluster if isinstance(cluster, ClusterPolicy) else _DEFAULT_POLICY
    yield from _runtime_classes(policy)
    yield from render_agents(policy, operands_of(cluster), settings)


def _runtime_classes(policy: ClusterPolicy) -> Iterator[RenderedObject]:
    names = {runtime_class(policy)}
    if policy.spec.cdi.enabled:
        names |= {"nvidia-cdi", "nvidia-legacy"}
    for name in sorted(names):
        runtime_class_object = {
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
        yield RenderedObject(operand=Operand.PREREQUISITES, object=runtime_class_object)
