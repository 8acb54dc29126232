"""Render all operands of all pools in a stable order.

Each driver DaemonSet belongs to a pool; agents and RuntimeClasses exist once per cluster. Disabled
operands are not rendered; drivers that cannot be rendered are returned as failures.
"""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from libs.policy.kinds.cluster_policy import CLUSTER_POLICY, ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY, GpuClusterPolicy
from libs.policy.pool import ClusterWidePolicy, Pools
from libs.policy.render.agent_pods import runtime_class
from libs.policy.render.agents import render_agents
from libs.policy.render.claims import render_device_classes
from libs.policy.render.driver import ConfigMaps, render_driver, startup_probe_script
from libs.policy.render.exporter import render_exporter, render_node_status
from libs.policy.render.rendered import (
    CDI_CLASS,
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


def render_operands(
    pools: Pools,
    placement: NodeVariants,
    settings: RenderSettings,
    *,
    config_maps: ConfigMaps,
    handlers: Collection[str] = (),
    claims_end: bool = False,
) -> RenderResult:
    """Render all wanted operands.

    `config_maps` are the ConfigMaps of the operands' namespace that policies name; `handlers` are
    the runtime handlers that nodes know. `claims_end`: pods have GPUs by claims from before.
    """
    held = _is_held(pools)
    objects: list[RenderedObject] = []
    if not held:
        objects += _cluster_operands(pools, settings, handlers, claims_end=claims_end)
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


def _cluster_operands(
    pools: Pools, settings: RenderSettings, handlers: Collection[str], *, claims_end: bool
) -> Iterator[RenderedObject]:
    """Render the operands that exist once per cluster."""
    policy = pools.cluster if isinstance(pools.cluster, ClusterPolicy) else ClusterPolicy()
    yield from _runtime_classes(runtime_classes(policy).intersection(handlers))
    operands = msgspec.structs.replace(
        operands_of(pools.cluster),
        claims_end=claims_end,
        gds=any(pool.driver.gds.enabled for pool in pools.pools),
        gdrcopy=any(pool.driver.gdrcopy.enabled for pool in pools.pools),
        startup_taints=tuple(sorted({pool.strategy.startup_taint for pool in pools.pools} - {""})),
    )
    yield from render_agents(policy, operands, settings)
    if operands.dra:
        yield from render_device_classes()
    if operands.telemetry:
        yield from render_exporter(policy, settings)
    if operands.node_status:
        yield from render_node_status(policy, settings)


def runtime_classes(cluster: ClusterWidePolicy | None) -> frozenset[str]:
    """Return the names of the RuntimeClasses that a policy wants; each names its handler."""
    policy = cluster if isinstance(cluster, ClusterPolicy) else ClusterPolicy()
    names = {runtime_class(policy)}
    if policy.spec.cdi.enabled:
        names.add(CDI_CLASS)
    return frozenset(names)


def _runtime_classes(names: Collection[str]) -> Iterator[RenderedObject]:
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
