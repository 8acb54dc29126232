"""Objects that both servers accept from kubectl."""

from typing import Any

from tests.component.kube.kubectl.kubectl_process import Kubectl

JsonObject = dict[str, Any]


def node(kubectl: Kubectl, name: str, **fields: Any) -> JsonObject:
    """Return a Ready node with the labels of this test."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": kubectl.prefix + name, "labels": {**kubectl.labels, "pool": name}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {
                "kubeletVersion": "v1.37.1",
                "osImage": "Ubuntu 24.04",
                "kernelVersion": "6.8.0",
                "architecture": "amd64",
                "containerRuntimeVersion": "containerd://2.1",
            },
        },
        **fields,
    }


def pod(name: str, **spec: Any) -> JsonObject:
    """Return a pod that no scheduler binds."""
    containers = [{"name": "main", "image": "r/i:1"}, {"name": "side", "image": "r/j:2"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": containers, "schedulerName": "none", **spec},
    }


def config_map(name: str, **data: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def definition(kubectl: Kubectl) -> JsonObject:
    """Return the definition of a kind of this test alone."""
    group = f"{kubectl.prefix}a.test"
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"size": {"type": "integer", "minimum": 1, "default": 3}},
            },
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}", "labels": kubectl.labels},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": "widgets", "singular": "widget", "kind": "Widget",
                "listKind": "WidgetList", "shortNames": [f"{kubectl.prefix}w"],
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                    "additionalPrinterColumns": [
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size",
                         "priority": 1},
                    ],
                }
            ],
        },
    }  # fmt: skip


def widget(kubectl: Kubectl, name: str, **spec: Any) -> JsonObject:
    return {
        "apiVersion": f"{kubectl.prefix}a.test/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    }


def event(about: JsonObject, name: str, **fields: Any) -> JsonObject:
    """Return an event about the object, at the time of its creation."""
    metadata = about["metadata"]
    namespace = metadata.get("namespace", "default")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": metadata.get("namespace", ""),
            "uid": metadata["uid"],
        },
        "type": "Normal",
        "source": {"component": "nvidia-gpu-operator"},
        "firstTimestamp": metadata["creationTimestamp"],
        "lastTimestamp": metadata["creationTimestamp"],
        "count": 2,
        **fields,
    }
