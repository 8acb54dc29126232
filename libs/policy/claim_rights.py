"""What limits the plugin for claims at the API server beyond its rights."""

from collections.abc import Mapping
from typing import Any, Final

from libs.policy.render.claims import DEVICE_CLASS_GROUP, DRIVER

Object = dict[str, Any]

_ADMISSION: Final = "admissionregistration.k8s.io/v1"


def limit_of_slices(
    namespace: str, *, account: str, labels: Mapping[str, str]
) -> tuple[Object, Object]:
    """Return the policy by which the plugin for claims writes slices of its own node alone.

    Its token belongs to a pod, and names the node of the pod.
    """
    user = f"system:serviceaccount:{namespace}:{account}"
    own_node = "request.userInfo.extra['authentication.kubernetes.io/node-name'][0]"
    kind = "ValidatingAdmissionPolicy"
    metadata = {"name": f"{namespace}-sluice-dra", "labels": labels}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [DEVICE_CLASS_GROUP],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["resourceslices"],
                }
            ]
        },
        "matchConditions": [
            {"name": "account", "expression": f"request.userInfo.username == '{user}'"}
        ],
        "validations": [
            {
                "expression": f"object.spec.driver == '{DRIVER}'"
                f" && object.spec.?nodeName.orValue('') == {own_node}",
                "message": "the plugin for claims may write slices of its own node only",
            }
        ],
    }
    binding = {"policyName": metadata["name"], "validationActions": ["Deny"]}
    return (
        {"apiVersion": _ADMISSION, "kind": kind, "metadata": metadata, "spec": spec},
        {"apiVersion": _ADMISSION, "kind": f"{kind}Binding", "metadata": metadata, "spec": binding},
    )
