"""Paths of Node fields as in the journal, and the users that write them."""

import json
import re
from typing import Final

from libs.contracts.node import (
    DRIVER_LABEL,
    INITIALLY_CORDONED_ANNOTATION,
    KEEP_CORDONED_LABEL,
    LEASE_ANNOTATION,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
)

SCHEDULER: Final = "system:serviceaccount:sluice:sluice-scheduler"
NODE_CONTROLLER: Final = "system:serviceaccount:kube-system:node-controller"
DAEMON_SET_CONTROLLER: Final = "system:serviceaccount:kube-system:daemon-set-controller"
POD_GC: Final = "system:serviceaccount:kube-system:pod-garbage-collector"
DISCOVERY: Final = "system:serviceaccount:sluice:sluice-discovery-cluster"
KUBELET: Final = "system:node"
PERSON: Final = "person"

_PLAIN = re.compile(r"[^.\[\]/=,\"\s]+")
_LABELS = frozenset({STATE_LABEL, DRIVER_LABEL, SKIP_LABEL, KEEP_CORDONED_LABEL})


def key_in(where: str, key: str) -> str:
    """Return the path of a key of a map."""
    return f"{where}.{key}" if _PLAIN.fullmatch(key) else f"{where}[{json.dumps(key)}]"


def path_of(key: str) -> str:
    """Return the path of a known label or annotation."""
    return key_in("metadata.labels" if key in _LABELS else "metadata.annotations", key)


UID: Final = "metadata.uid"
CORDON: Final = "spec.unschedulable"
STATE: Final = path_of(STATE_LABEL)
DRIVER: Final = path_of(DRIVER_LABEL)
SKIP: Final = path_of(SKIP_LABEL)
KEEP_CORDONED: Final = path_of(KEEP_CORDONED_LABEL)
LEASE: Final = path_of(LEASE_ANNOTATION)
RECORD: Final = path_of(RECORD_ANNOTATION)
REQUEST: Final = path_of(REQUEST_ANNOTATION)
REQUESTED: Final = path_of(REQUESTED_ANNOTATION)
SAFE_LOAD: Final = path_of(SAFE_LOAD_ANNOTATION)
INITIALLY_CORDONED: Final = path_of(INITIALLY_CORDONED_ANNOTATION)
PAUSED: Final = key_in("metadata.labels", "nvidia.com/gpu.deploy.dcgm")
TAINT: Final = "spec.taints[key=node.kubernetes.io/unschedulable,effect=NoSchedule]"
