"""A ValidatingAdmissionPolicy on what some accounts create and update. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

Object = dict[str, Any]

_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_KIND: Final = "ValidatingAdmissionPolicy"


class Rule(NamedTuple):
    """What such a write has to be."""

    expression: str
    """In CEL."""
    message: str


def user_of(namespace: str, account: str) -> str:
    return f"system:serviceaccount:{namespace}:{account}"


def admission_policy(
    name: str,
    labels: Mapping[str, str],
    *,
    users: Iterable[str],
    resources: Mapping[str, tuple[str, ...]],
    variables: Mapping[str, str],
    rules: Iterable[Rule],
) -> Iterator[Object]:
    """Yield the policy and its binding; `resources` are by group."""
    metadata = {"name": name, "labels": labels}
    listed = ", ".join(f"'{user}'" for user in users)
    spec: Object = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [group],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": list(names),
                }
                for group, names in resources.items()
            ]
        },
        "matchConditions": [
            {"name": "account", "expression": f"request.userInfo.username in [{listed}]"}
        ],
        "variables": [{"name": each, "expression": text} for each, text in variables.items()],
        "validations": [
            {"expression": rule.expression, "reason": "Forbidden", "message": rule.message}
            for rule in rules
        ],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    for kind, content in ((_KIND, spec), (f"{_KIND}Binding", binding)):
        yield {"apiVersion": _ADMISSION, "kind": kind, "metadata": metadata, "spec": content}
