"""The plugin for claims writes the slice of devices of its own node alone. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from libs.policy.admission.policy import Object, Rule, admission_policy, user_of
from libs.policy.render.claims import DEVICE_CLASS_GROUP, DRIVER

_NODE: Final = "request.userInfo.extra['authentication.kubernetes.io/node-name'][0]"
_RULE: Final = Rule(
    expression=(
        f"object.spec.driver == '{DRIVER}' && object.spec.?nodeName.orValue('') == variables.node"
        f" && object.metadata.name == variables.node + '-{DRIVER}'"
        " && object.spec.pool.name == variables.node"
    ),
    message=(
        "the plugin for claims may write the slice of its own node only, under its name and in its"
        " pool"
    ),
)


def limit_of_slices(namespace: str, *, account: str, labels: Mapping[str, str]) -> Iterator[Object]:
    """Yield the policy. The token of the plugin belongs to a pod, and names the pod's node.

    Names of slice and pool are fixed too: a slice under the name of another node's would keep that
    node from publishing its own, and one in another's pool would make that pool incomplete.
    """
    yield from admission_policy(
        f"{namespace}-sluice-dra",
        labels,
        users=(user_of(namespace, account),),
        resources={DEVICE_CLASS_GROUP: ("resourceslices",)},
        variables={"node": _NODE},
        rules=(_RULE,),
    )
