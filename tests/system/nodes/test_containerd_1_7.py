"""A node with containerd 1.7 runs pods, and those of a handler that is added to its configuration.

In this version a drop-in file replaces what the configuration says of a plugin, so that a handler
is added to the configuration itself.
"""

import pytest

from libs.testing.realnodes.build import Containerd
from libs.testing.realnodes.ground import Ground, NodeSearch
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.pods import pod

CONFIG = "/etc/containerd/config.toml"
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


@pytest.mark.timeout(300)
async def test_a_node_with_containerd_1_7_runs_pods(search: NodeSearch) -> None:
    if not search.programs.containerd(Containerd.V1_7).is_dir():
        pytest.skip("no containerd 1.7: run `make node`")
    ground = await Ground.start(search, nodes=1, containerd=Containerd.V1_7)
    try:
        (node,) = ground.nodes
        kubectl = Kubectl(ground.kube)
        await kubectl.wait("create", f"node/{node.name}")
        await kubectl.wait("condition=Ready", f"node/{node.name}", timeout=120)
        info = (await kubectl.get(f"node/{node.name}"))["status"]["nodeInfo"]
        assert info["containerRuntimeVersion"].startswith("containerd://1.7.")
        await kubectl.wait("create", "serviceaccount/default")
        await kubectl.apply(pod("first", node.name))
        await kubectl.wait("condition=Ready", "pod/first", timeout=120)
        await node.run("sh", "-c", f"echo '{HANDLER}' >> {CONFIG}")
        await ground.thread.run(node.restart_containerd())
        second = pod("second", node.name)
        second["spec"]["runtimeClassName"] = "another"
        await kubectl.apply(RUNTIME_CLASS, second)
        await kubectl.wait("condition=Ready", "pod/first", "pod/second", timeout=120)
        assert await kubectl.run("logs", "second") == "started\n"
    finally:
        await ground.stop()
