"""A node with containerd 1.7 runs pods, and those of a handler that is added to its configuration.

In this version a drop-in file replaces what the configuration says of a plugin, so that a handler
is added to the configuration itself.
"""

from libs.testing.realnodes.node import Node
from tests.system.nodes.conftest import CONFIG
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.pods import pod

HANDLER = """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.another]
  runtime_type = "io.containerd.runc.v2"
"""
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "another"},
    "handler": "another",
}


async def test_a_node_with_containerd_1_7_runs_pods(node_1_7: Node, kubectl_1_7: Kubectl) -> None:
    node, kubectl = node_1_7, kubectl_1_7
    info = (await kubectl.get(f"node/{node.name}"))["status"]["nodeInfo"]
    assert info["containerRuntimeVersion"].startswith("containerd://1.7.")
    await kubectl.apply(pod("first", node.name))
    await kubectl.wait("condition=Ready", "pod/first")
    await node.run("sh", "-c", f"echo '{HANDLER}' >> {CONFIG}")
    await node.restart_containerd()
    second = pod("second", node.name)
    second["spec"]["runtimeClassName"] = "another"
    await kubectl.apply(RUNTIME_CLASS, second)
    await kubectl.wait("condition=Ready", "pod/first", "pod/second")
    assert await kubectl.run("logs", "second") == "started\n"
    await kubectl.run("delete", "runtimeclass/another")
