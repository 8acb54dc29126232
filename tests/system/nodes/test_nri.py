"""Pods on a real node get devices by annotation, from the plugin of NRI in a pod of our image."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from libs.testing.realnodes.ground import Ground
from libs.testing.realnodes.node import Node
from tests.system.nodes.conftest import CONFIG
from tests.system.nodes.kubectl import Kubectl
from tests.system.nodes.nri import (
    ALLOWED,
    GIVEN,
    OTHER,
    SPEC,
    annotated,
    prepare,
    refusal,
    seen,
    start_on,
    until_registered,
    until_said,
)
from tests.system.nodes.pods import pod

NRI = 'plugins."io.containerd.nri.v1.nri"'
VALIDATED = f"version = 3\n[{NRI}.default_validator]\nenable = true\n"
DISABLED = f"version = 3\n[{NRI}]\ndisable = true\n"
DROP_IN = "/etc/containerd/conf.d/nri.toml"
IN_1_7 = f"""
sed -i 's/^  restrict_oom_score_adj = true$/&\\n  enable_cdi = true/' {CONFIG}
printf '[{NRI}]\\ndisable = false\\n' >> {CONFIG}
"""
Start = Callable[[], Awaitable[None]]


@pytest.fixture
async def node(ground: Ground, kubectl: Kubectl) -> AsyncIterator[Node]:
    node = ground.nodes[0]
    await prepare(node, kubectl)
    yield node
    await node.run("rm", "-f", SPEC)
    for name in (ALLOWED, OTHER):
        await kubectl.run("delete", "pods", "--all", "--namespace", name)


@pytest.fixture
async def configure(node: Node) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """Start containerd with more configuration."""

    async def configure(text: str) -> None:
        await node.run("sh", "-c", f"mkdir -p /etc/containerd/conf.d && echo '{text}' > {DROP_IN}")
        await node.restart_containerd()

    yield configure
    await node.run("rm", "-f", DROP_IN)
    await node.restart_containerd()


@pytest.fixture
async def start_plugin(node: Node, kubectl: Kubectl) -> AsyncIterator[Start]:
    """Start the plugin; return when it is registered."""

    async def start() -> None:
        await start_on(node, kubectl)
        await until_registered(kubectl, times=1)

    yield start
    await kubectl.run("delete", "pod/nri", "--ignore-not-found")


async def test_pods_get_a_device_by_annotation_where_it_is_allowed(
    node: Node, kubectl: Kubectl, start_plugin: Start
) -> None:
    await start_plugin()
    by_environment = pod("by-environment", node.name)
    by_environment["metadata"]["namespace"] = ALLOWED
    by_environment["spec"]["containers"][0]["env"] = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    ]
    unknown = annotated("unknown", node)
    unknown["metadata"]["annotations"] = {"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=GPU-2"}
    await kubectl.apply(
        annotated("allowed", node), annotated("refused", node, OTHER), by_environment, unknown
    )
    assert await seen(kubectl, "allowed") == GIVEN
    assert await seen(kubectl, "by-environment") == []
    said = await refusal(kubectl, "refused", OTHER)
    assert "which pods of the namespace team-b may not have: list the namespace in" in said
    assert "GPU-2" in await refusal(kubectl, "unknown", ALLOWED)

    await node.restart_containerd()
    await until_registered(kubectl, times=2)
    await kubectl.apply(annotated("after-containerd", node))
    assert await seen(kubectl, "after-containerd") == GIVEN

    # Once it is gone: a container that it refused meanwhile is tried again after 10 s.
    await kubectl.run("delete", "pod/nri", "--grace-period=1")
    await kubectl.apply(annotated("without-plugin", node, OTHER))
    assert await seen(kubectl, "without-plugin", OTHER) == [], "created, without the device"
    await start_plugin()
    await kubectl.apply(annotated("after-plugin", node))
    assert await seen(kubectl, "after-plugin") == GIVEN


@pytest.mark.soak(
    "it shows containerd's own validator, and the kubelet waits before it tries again; in each run"
    " pods get devices from the plugin, also after restarts of containerd and of the plugin"
)
async def test_pods_that_require_the_plugin_wait_for_it(
    node: Node,
    kubectl: Kubectl,
    start_plugin: Start,
    configure: Callable[[str], Awaitable[None]],
) -> None:
    """What docs/compatibility.md says to those for whom a container may not start without."""
    await configure(VALIDATED)
    waiting = annotated("waiting", node)
    required = {"required-plugins.noderesource.dev/container.main": '["sluice"]'}
    waiting["metadata"]["annotations"] |= required
    await kubectl.apply(waiting)
    assert 'required plugin "sluice"' in await refusal(kubectl, "waiting", ALLOWED)
    await start_plugin()
    assert await seen(kubectl, "waiting") == GIVEN


async def test_a_runtime_without_nri_is_named(
    node: Node,
    kubectl: Kubectl,
    start_plugin: Start,
    configure: Callable[[str], Awaitable[None]],
) -> None:
    await start_plugin()
    await configure(DISABLED)
    await until_said(kubectl, "NRI is disabled in the configuration of the container runtime")
    await configure("")
    await until_registered(kubectl, times=2)


@pytest.mark.soak(
    "the plugin speaks the same protocol with both releases; in each run it gives devices on"
    " containerd 2, and containerd 1.7 runs pods"
)
async def test_containerd_1_7_gives_devices_once_it_is_configured(
    node_1_7: Node, kubectl_1_7: Kubectl
) -> None:
    node, kubectl = node_1_7, kubectl_1_7
    await prepare(node, kubectl)
    for namespace in (ALLOWED, OTHER):
        await kubectl.wait("create", "serviceaccount/default", "--namespace", namespace)
    await start_on(node, kubectl)
    await until_said(kubectl, "there is no socket /var/run/nri/nri.sock: NRI is disabled")
    await node.run("sh", "-c", IN_1_7)
    await node.restart_containerd()
    await until_registered(kubectl, times=1)
    await kubectl.apply(annotated("allowed", node), annotated("refused", node, OTHER))
    assert await seen(kubectl, "allowed") == GIVEN
    assert "which pods of the namespace team-b" in await refusal(kubectl, "refused", OTHER)
    await node.run("rm", SPEC)
