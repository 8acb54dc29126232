"""What people run on nodes whose GPUs are given by claims, and the policy for it."""

import re
from typing import Any, Final

from libs.contracts.node import DRAIN_SKIP_LABEL
from libs.policy.render.claims import DRIVER
from tests.system.nodes.kubectl import Kubectl
from tests.system.upgrade.workload import COMPUTE, RESOURCE, container, service

POLICY: Final[dict[str, Any]] = {"devicePlugin": {"enabled": False}, "dra": {"enabled": True}}
"""The sections of a policy that gives GPUs by claims."""
JOBS: Final = "team=train"
"""Selects the pods of jobs."""
GO: Final = "go"
"""The ConfigMap without which a pod that is bound does not start."""

_JOB_LABELS: Final = {"team": "train"}
_API: Final = "resource.k8s.io/v1"
_CLAIM: Final = "gpu"
_BY_CLAIM: Final = {"claims": [{"name": _CLAIM}]}
_ONE_GPU: Final = {
    "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}
}
_LOOK: Final = "ls /dev/nvidia[0-9]*; cat /proc/self/mountinfo"
_MOUNTED: Final = re.compile(r"/libnvidia-ml\.so\.([0-9.]+) /usr/lib")
"""A library of a driver, by its file on the machine, and where the container has it."""

Object = dict[str, Any]


def claimed_service(replicas: int) -> list[Object]:
    """Return a Deployment with a pod per node that has a claim, of which none may be missing."""
    deployment, budget = service(replicas)
    spec = deployment["spec"]["template"]["spec"]
    spec["containers"] = [container(_BY_CLAIM)]
    spec["resourceClaims"] = [{"name": _CLAIM, "resourceClaimTemplateName": _CLAIM}]
    budget["spec"]["maxUnavailable"] = 0
    template = _of_claims("ResourceClaimTemplate", _CLAIM, {"spec": _ONE_GPU})
    return [template, deployment, budget]


def job_on(node: str) -> Object:
    """Return a job that asks for a GPU without a claim of its own, and ends when it is told to."""
    spec = {
        "containers": [container({"limits": {RESOURCE: 1}}, COMPUTE)],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "restartPolicy": "Never",
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"train-{node}", "namespace": "default"},
        "spec": {"template": {"metadata": {"labels": _JOB_LABELS}, "spec": spec}},
    }


def claiming_pod(name: str, node: str) -> list[Object]:
    """Return the claim of a pod, and the pod on a node, also while that is cordoned."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [container(_BY_CLAIM)],
            "resourceClaims": [{"name": _CLAIM, "resourceClaimName": name}],
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
        },
    }
    return [_of_claims("ResourceClaim", name, _ONE_GPU), pod]


def bound_pod(name: str, node: str) -> list[Object]:
    """Return such a pod that no upgrade evicts, and that does not start before `GO` is there."""
    claim, pod = claiming_pod(name, node)
    pod["metadata"]["labels"] = {DRAIN_SKIP_LABEL: "true"}
    pod["spec"]["volumes"] = [{"name": GO, "configMap": {"name": GO}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": GO, "mountPath": f"/{GO}"}]
    return [claim, pod]


def config() -> Object:
    metadata = {"name": GO, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def _of_claims(kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": _API, "kind": kind, "metadata": metadata, "spec": spec}


async def gpus_and_drivers(kubectl: Kubectl, pod: str) -> tuple[int, set[str]]:
    """Return how many GPUs a pod has, and of which drivers it has the library."""
    said = await kubectl.run("exec", pod, "--", "sh", "-c", _LOOK)
    gpus = re.findall(r"^/dev/nvidia[0-9]+$", said, re.MULTILINE)
    return len(gpus), set(_MOUNTED.findall(said))


async def published(kubectl: Kubectl) -> dict[str, list[str]]:
    """Return the driver's version of each device that can be claimed, by node."""
    return {
        each["spec"]["nodeName"]: [
            device["attributes"]["driverVersion"]["version"]
            for device in each["spec"].get("devices", [])
        ]
        for each in (await kubectl.get("resourceslices"))["items"]
        if each["spec"]["driver"] == DRIVER
    }
