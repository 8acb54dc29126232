"""CustomResourceDefinitions of other software, with any fields."""

from typing import Any

from libs.kube.requests import Transport
from libs.kube.resources import Resource
from services.driver.cluster.resources import SERVICE_MONITORS
from tests.component.policy.strict_writes import apply, is_served
from tests.support import eventually


def open_definition(api: Resource[Any]) -> dict[str, Any]:
    """Return the definition of a kind that accepts any fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": api.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{api.plural}.{api.group}"},
        "spec": {
            "group": api.group,
            "names": {
                "kind": api.kind,
                "listKind": f"{api.kind}List",
                "plural": api.plural,
                "singular": api.kind.lower(),
            },
            "scope": "Namespaced" if api.namespaced else "Cluster",
            "versions": [version],
        },
    }


async def install_monitors(wire: Transport) -> None:
    """Install the kind ServiceMonitor, and wait until it is served."""
    await apply(wire, open_definition(SERVICE_MONITORS))
    await eventually(lambda: is_served(wire, SERVICE_MONITORS.path()), within=30)
