"""What of the operands does not exist yet: the device plugin.

Here alone it is left out of what is rendered, and said to people. Pure.
"""

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
    """What there is of it; and nobody is told to wait for the rest."""
    objects = [
        _without_check(made) if made.operand is Operand.VALIDATION else made
        for made in rendering.objects
        if made.operand is not Operand.DEVICE_PLUGIN
    ]
    return msgspec.structs.replace(rendering, objects=tuple(objects))


def with_condition(status: PolicyStatus, pools: Pools) -> PolicyStatus:
    """The policy that asks for what does not exist hears of it."""
    cluster = pools.cluster
    if cluster is None or not cluster.spec.device_plugin.enabled:
        return status
    if status.kind not in (CLUSTER_POLICY.name, GPU_CLUSTER_POLICY.name):
        return status
    if (status.name, status.uid) != (cluster.metadata.name, cluster.metadata.uid):
        return status
    return msgspec.structs.replace(status, conditions=(*status.conditions, _MISSING))


def _without_check(made: RenderedObject) -> RenderedObject:
    """Objects share their parts: what changes is made anew, down to the variable."""
    spec = made.object["spec"]
    pod = spec["template"]["spec"]
    pod = {**pod, "containers": [_container(one) for one in pod["containers"]]}
    spec = {**spec, "template": {**spec["template"], "spec": pod}}
    return msgspec.structs.replace(made, object={**made.object, "spec": spec})


def _container(container: dict[str, Any]) -> dict[str, Any]:
    env = [
        {**variable, "value": "false"} if variable["name"] == _CHECK else variable
        for variable in container["env"]
    ]
    return {**container, "env": env}
