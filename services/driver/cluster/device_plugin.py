"""Leaves the device plugin, which does not exist yet, out of the operands, and says so. Pure."""

from typing import Any, Final

import msgspec

from libs.policy.kinds.cluster_policy import CLUSTER_POLICY
from libs.policy.kinds.gpu_cluster_policy import GPU_CLUSTER_POLICY
from libs.policy.pools import Pools
from libs.policy.render.rendered import Operand, RenderedObject, RenderResult
from libs.policy.status import PolicyStatus, StatusCondition

CONDITION: Final = "DevicePlugin"
_CHECK: Final = "SLUICE_CHECK_PLUGIN"
_MISSING: Final = StatusCondition(
    type=CONDITION,
    status=False,
    reason="NotBuilt",
    message=(
        "spec.devicePlugin.enabled (true): this version of Sluice has no device plugin, so it"
        " offers no GPU to pods: run another one, or set it to false"
    ),
)


def without_device_plugin(rendering: RenderResult) -> RenderResult:
    """Remove the plugin, and the validator's check of it."""
    objects = [
        _without_check(rendered) if rendered.operand is Operand.VALIDATION else rendered
        for rendered in rendering.objects
        if rendered.operand is not Operand.DEVICE_PLUGIN
    ]
    return msgspec.structs.replace(rendering, objects=tuple(objects))


def with_condition(status: PolicyStatus, pools: Pools) -> PolicyStatus:
    """Add a condition to the status of the policy that enables the plugin."""
    cluster = pools.cluster
    if cluster is None or not cluster.spec.device_plugin.enabled:
        return status
    if status.kind not in (CLUSTER_POLICY.name, GPU_CLUSTER_POLICY.name):
        return status
    if (status.name, status.uid) != (cluster.metadata.name, cluster.metadata.uid):
        return status
    return msgspec.structs.replace(status, conditions=(*status.conditions, _MISSING))


def _without_check(rendered: RenderedObject) -> RenderedObject:
    """Copy what changes: rendered objects share their parts."""
    spec = rendered.object["spec"]
    pod = spec["template"]["spec"]
    pod = {**pod, "containers": [_disable_check(each) for each in pod["containers"]]}
    spec = {**spec, "template": {**spec["template"], "spec": pod}}
    return msgspec.structs.replace(rendered, object={**rendered.object, "spec": spec})


def _disable_check(container: dict[str, Any]) -> dict[str, Any]:
    env = [
        {**variable, "value": "false"} if variable["name"] == _CHECK else variable
        for variable in container["env"]
    ]
    return {**container, "env": env}
