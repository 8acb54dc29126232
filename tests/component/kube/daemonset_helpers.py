"""DaemonSets in a test: their pods, their status, and the writes of a kubelet."""

from collections.abc import Sequence
from typing import Any

from libs.kube.resources import DAEMON_SETS, PODS
from libs.kube.views import DaemonSetStatus, Pod
from tests.builders.objects import daemon_set
from tests.component.kube.builders import READY
from tests.component.kube.raw_requests import patch
from tests.component.kube.sandbox import Sandbox
from tests.support import eventually

HASH = "controller-revision-hash"


async def pods_of(sandbox: Sandbox, name: str) -> list[Pod]:
    page = await sandbox.kube().list_page(PODS, labels=f"app={name}")
    return list(page.items)


async def bound_pods(sandbox: Sandbox, name: str, count: int = 1) -> list[Pod]:
    """Wait until this many pods are bound and not terminating; return them sorted by node."""
    pods: list[Pod] = []

    async def all_bound() -> bool:
        nonlocal pods
        pods = [pod for pod in await pods_of(sandbox, name) if not pod.metadata.deletion_timestamp]
        return len(pods) == count and all(pod.spec.node_name for pod in pods)

    await eventually(all_bound)
    return sorted(pods, key=lambda pod: pod.spec.node_name)


async def terminating_pods(sandbox: Sandbox, name: str, count: int = 1) -> list[Pod]:
    """Wait until this many pods are terminating; return them."""
    pods: list[Pod] = []

    async def all_terminating() -> bool:
        nonlocal pods
        pods = [pod for pod in await pods_of(sandbox, name) if pod.metadata.deletion_timestamp]
        return len(pods) == count

    await eventually(all_terminating)
    return pods


async def mark_ready(sandbox: Sandbox, pods: Sequence[Pod]) -> None:
    """Report the pods ready, as a kubelet does."""
    kubelet = sandbox.kube(manager="kubelet")
    for pod in pods:
        await patch(kubelet, PODS, pod.metadata.name, {"status": READY}, subresource="status")


async def finish_pod(sandbox: Sandbox, pod: Pod) -> None:
    """Delete the pod, as a kubelet does when all containers have ended."""
    await sandbox.kube(manager="kubelet").delete(
        PODS, pod.metadata.name, uid=pod.metadata.uid, grace=0
    )


async def daemonset_status(sandbox: Sandbox, name: str, **numbers: int) -> DaemonSetStatus:
    """Wait until the status has these numbers; return it."""
    status = DaemonSetStatus()

    async def matches() -> bool:
        nonlocal status
        status = (await sandbox.kube().get(DAEMON_SETS, name)).status
        return all(getattr(status, field) == value for field, value in numbers.items())

    await eventually(matches)
    return status


async def create_daemonset(
    sandbox: Sandbox, name: str, selector: dict[str, str], **more: Any
) -> None:
    await sandbox.kube().create(DAEMON_SETS, daemon_set(name, selector=selector, **more))


async def set_image(sandbox: Sandbox, name: str, image: str) -> None:
    template = {"spec": {"containers": [{"name": "main", "image": image}]}}
    change = {"spec": {"template": template}}
    await patch(sandbox.kube(), DAEMON_SETS, name, change)
