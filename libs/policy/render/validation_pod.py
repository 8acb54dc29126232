"""The pod that asks for a GPU, to confirm the validation of a node. Pure."""

import hashlib
from typing import Final

from libs.policy.installation import DRIVER_ACCOUNT
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.render.pod_fields import JsonObject, drop_empty, pull_secrets
from libs.policy.render.rendered import COMMON_LABELS, RenderSettings
from libs.policy.wanted import DEFAULT_PRIORITY_CLASS

APP: Final = "nvidia-device-plugin-validator"
"""The label `app` of these pods, as in the GPU Operator."""
CONTAINER: Final = "plugin-validation"
_SECONDS: Final = 300
"""How long the kubelet lets it run: it may have to pull the image."""


def validation_pod_name(node_uid: str, order: str) -> str:
    """Return the name of the pod that confirms this validation of a node, and no other."""
    return f"sluice-validation-{hashlib.sha256(f'{node_uid}/{order}'.encode()).hexdigest()[:16]}"


def render_validation_pod(
    policy: ClusterPolicy,
    settings: RenderSettings,
    *,
    node: str,
    node_uid: str,
    order: str,
    resource: str,
) -> JsonObject:
    """Return the pod; it passes the cordon of its node, and ends with the Node."""
    section = policy.spec.validator
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": validation_pod_name(node_uid, order),
            "namespace": settings.namespace,
            "labels": {**COMMON_LABELS, "app": APP},
            "ownerReferences": [owner],
        },
        "spec": drop_empty(
            {
                "nodeName": node,
                "serviceAccountName": DRIVER_ACCOUNT,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "restartPolicy": "Never",
                "activeDeadlineSeconds": _SECONDS,
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}],
                "priorityClassName": policy.spec.daemonsets.priority_class_name
                or DEFAULT_PRIORITY_CLASS,
                "imagePullSecrets": pull_secrets(
                    (*section.image_pull_secrets, *settings.pull_secrets)
                ),
                "securityContext": {
                    "runAsNonRoot": True,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": CONTAINER,
                        "image": settings.images.validator,
                        "imagePullPolicy": section.image_pull_policy or settings.pull_policy,
                        "args": ["libs.host.cuda.in_pod"],
                        "resources": {"limits": {resource: "1"}},
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "readOnlyRootFilesystem": True,
                            "capabilities": {"drop": ["ALL"]},
                        },
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                    }
                ],
            }
        ),
    }
