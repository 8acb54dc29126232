"""Discovery and the driver service write their keys of Nodes alone. Pure.

Without this, whoever takes over one of them could taint every Node, and have all pods evicted that
do not tolerate it, or write that nodes are not ready.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from libs.contracts.node import RESERVED_DOMAINS, VALIDATION_POD_ANNOTATION
from libs.policy.admission.policy import Object, Rule, admission_policy, user_of
from libs.policy.owners import WORKLOAD_LABEL
from libs.policy.validation import OWNER_LABEL

DISCOVERY_LABELS: Final = (
    "feature.node.kubernetes.io/",
    "nvidia.com/cuda.",
    "nvidia.com/gfd.",
    "nvidia.com/gpu.",
    "nvidia.com/mig-",
    "nvidia.com/mig.capable",
    "nvidia.com/mig.strategy",
    "nvidia.com/mps.capable",
    "nvidia.com/vgpu.",
)
"""How the labels begin that discovery writes, besides those of vendors."""
HEALTH_CONDITION: Final = "GPUHealthy"
"""The condition that discovery writes."""


def _changed(field: str) -> dict[str, str]:
    """Return variables with the keys that a write adds, changes or removes."""
    after, before = f"variables.{field}After", f"variables.{field}Before"
    return {
        f"{field}After": f"object.metadata.?{field}.orValue({{}})",
        f"{field}Before": f"oldObject.metadata.?{field}.orValue({{}})",
        f"changed{field.capitalize()}": (
            f"{after}.filter(key, !(key in {before} && {before}[key] == {after}[key])) +"
            f" {before}.filter(key, !(key in {after}))"
        ),
    }


def _other_conditions(status: str) -> str:
    return f"{status}.?conditions.orValue([]).filter(each, each.type != '{HEALTH_CONDITION}')"


def _has_all_of(status: str, other: str) -> str:
    """Return whether each field of a status, without the conditions, is the same in another."""
    same = f"key in {other} && {other}[key] == {status}[key]"
    return f"{status}.all(key, key == 'conditions' || ({same}))"


def _is_same(field: str, default: str) -> str:
    return f"object.?{field}.orValue({default}) == oldObject.?{field}.orValue({default})"


_STATUS: Final = "variables.status"
_BEFORE: Final = "variables.statusBefore"
_VARIABLES: Final = {
    **_changed("labels"),
    **_changed("annotations"),
    "status": "object.?status.orValue({})",
    "statusBefore": "oldObject.?status.orValue({})",
}
_PREFIXES: Final = " || ".join(f"key.startsWith('{each}')" for each in DISCOVERY_LABELS)
_RESERVED: Final = "|".join(each.replace(".", "[.]") for each in RESERVED_DOMAINS)
_OF_VENDORS: Final = f"key.contains('/') && !key.matches('^([^/]*[.])?({_RESERVED})/')"
"""The labels that feature files of machines may name."""
_RULES: Final = (
    Rule(
        expression=(
            "variables.changedLabels.all(key, variables.byDiscovery ?"
            f" ({_PREFIXES} || ({_OF_VENDORS}))"
            f" && key != '{WORKLOAD_LABEL}' && key != '{OWNER_LABEL}' :"
            f" key == '{OWNER_LABEL}')"
        ),
        message=(
            "discovery writes labels about GPUs, drivers and features of a Node, and labels of"
            f" vendors, and the driver service its label {OWNER_LABEL}: no others"
        ),
    ),
    Rule(
        expression=(
            "variables.changedAnnotations.all(key, !variables.byDiscovery &&"
            f" key == '{VALIDATION_POD_ANNOTATION}')"
        ),
        message=(
            "discovery writes no annotation of a Node, and the driver service"
            f" {VALIDATION_POD_ANNOTATION} alone"
        ),
    ),
    Rule(
        expression=(
            f"{_is_same('spec', '{}')} && {_is_same('metadata.?finalizers', '[]')}"
            f" && {_is_same('metadata.?ownerReferences', '[]')}"
        ),
        message=(
            "neither discovery nor the driver service cordons or taints a Node, or decides when it"
            " is deleted"
        ),
    ),
    Rule(
        expression=(
            f"variables.byDiscovery ? {_other_conditions(_STATUS)} == {_other_conditions(_BEFORE)}"
            f" && {_has_all_of(_STATUS, _BEFORE)} && {_has_all_of(_BEFORE, _STATUS)}"
            f" : {_STATUS} == {_BEFORE}"
        ),
        message=(
            f"of the status of a Node, discovery writes the condition {HEALTH_CONDITION} alone, and"
            " the driver service nothing"
        ),
    ),
)


def limit_of_nodes(
    namespace: str, *, discovery: str, driver: str, labels: Mapping[str, str]
) -> Iterator[Object]:
    """Yield the policy."""
    user = user_of(namespace, discovery)
    yield from admission_policy(
        f"{namespace}-sluice-nodes",
        labels,
        users=(user, user_of(namespace, driver)),
        resources={"": ("nodes", "nodes/status")},
        variables={"byDiscovery": f"request.userInfo.username == '{user}'", **_VARIABLES},
        rules=_RULES,
    )
