"""What the tests look at in a rendered chart."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).parents[3] / "deploy/chart"
FIELDS: Final = CHART / "files/cluster-policy-fields.json"
VALUES: Final = sorted((Path(__file__).parent / "values").glob("*.yaml"))

Object = dict[str, Any]

HOOK: Final = "helm.sh/hook"

FOREIGN: Final = {"Certificate", "PodMonitor", "PrometheusRule", "ServiceMonitor"}
"""Kinds of others, of which the API server of the tests has no definitions."""


_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C, where there is one: definitions are long."""


def parsed(text: str) -> list[Object]:
    """Return the objects of a text of YAML documents, without empty ones."""
    return [each for each in yaml.load_all(text, _LOADER) if each]


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """Return the objects of a kind by name."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def is_hook(obj: Object) -> bool:
    return HOOK in obj["metadata"].get("annotations", {})


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Yield name and pod template of each workload."""
    for each in objects:
        if template := each.get("spec", {}).get("template"):
            yield f"{each['kind']}/{each['metadata']['name']}", template


def environment(pod: Object) -> dict[str, Any]:
    """Return the variables of a pod's only container; empty where the pod decides the value."""
    (container,) = pod["spec"]["containers"]
    return {each["name"]: each.get("value", "") for each in container["env"]}
