"""kubectl on the real server: a client-side apply, a drain, and Rollouts."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from libs.contracts.rollout import (
    ConditionStatus,
    ConditionType,
    Counts,
    RolloutCondition,
    RolloutStatus,
)
from libs.ctl.applied_policy import parse_applied
from libs.ctl.policy_file import parse_policy_file
from libs.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    CustomObject,
    custom_resource,
)
from libs.policy.crds import crd_manifests
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER, NvidiaDriver
from libs.policy.manifests import parse_object
from libs.testing.cluster.kubelet.fleet import KubeletFleet
from libs.testing.realkube.cluster import RealKube
from tests.builders.objects import budget, daemon_set, replica_set
from tests.component.kube.raw_requests import get_json, patch, send_request
from tests.component.kube.rollouts import create_rollout, put_status
from tests.component.kube.sandbox import Kube, Sandbox
from tests.support import eventually


@pytest.fixture
def ground(plane: RealKube) -> RealKube:
    """Select the real control plane only."""
    return plane


async def kubectl(plane: RealKube, sandbox: Sandbox, *words: str, document: str = "") -> str:
    """Run kubectl; return its output."""
    process = await asyncio.create_subprocess_exec(
        plane.kubectl,
        f"--kubeconfig={plane.kubeconfig()}",
        f"--namespace={sandbox.namespace}",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate(document.encode())
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_a_client_side_kubectl_apply_is_a_separate_field_owner(
    plane: RealKube, sandbox: Sandbox, kube: Kube
) -> None:
    document = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: a}
    data: {k: "%s"}
    """
    assert "configmap/a created" in await kubectl(
        plane, sandbox, "apply", "-f", "-", document=document % 1
    )
    assert "configmap/a configured" in await kubectl(
        plane, sandbox, "apply", "-f", "-", document=document % 2
    )
    assert "configmap/a unchanged" in await kubectl(
        plane, sandbox, "apply", "-f", "-", document=document % 2
    )
    now = await get_json(kube, CONFIG_MAPS, "a")
    assert now["data"] == {"k": "2"}
    assert "kubectl.kubernetes.io/last-applied-configuration" in now["metadata"]["annotations"]


_DRIVER = """
apiVersion: nvidia.com/v1alpha1
kind: NVIDIADriver
metadata: {name: %s}
spec: %s
"""
_FIRST = """
  {repository: r.example, image: driver, version: '1', nodeSelector: {a: x, b: x}, args: [one],
   labels: {gone: '1'}, upgradePolicy: {maxUnavailable: 3, drain: {enable: true}}}
"""
_THEIRS = {
    "priorityClassName": "theirs",
    "nodeSelector": {"c": "x"},
    "args": ["theirs"],
    "upgradePolicy": {"maxParallelUpgrades": 4, "drain": {"force": True}},
}
_SECOND = """
  {repository: r.example, image: driver, version: '2', nodeSelector: {a: z}, args: [two],
   priorityClassName: null, upgradePolicy: {drain: {enable: true}}}
"""


async def test_a_policy_of_a_file_is_planned_as_kubectl_apply_leaves_it(
    plane: RealKube, sandbox: Sandbox, kube: Kube
) -> None:
    """What the file had before is removed, what others wrote stays, and defaults come back."""
    await sandbox.install(crd_manifests()["nvidiadrivers.nvidia.com"])
    drivers = custom_resource(NVIDIA_DRIVER, CustomObject)
    name = f"{sandbox.prefix}driver"
    sandbox.delete_at_close(drivers, name)
    await kubectl(plane, sandbox, "apply", "-f", "-", document=_DRIVER % (name, _FIRST))
    await patch(kube, drivers, name, {"spec": _THEIRS})
    second = _DRIVER % (name, _SECOND)
    (policy,) = parse_policy_file("second", second.encode()).policies
    before = await kube.get(drivers, name)
    planned = parse_applied(policy, before).policy
    await kubectl(plane, sandbox, "apply", "-f", "-", document=second)
    after = await kube.get(drivers, name)
    left = parse_object("NVIDIADriver", metadata=after.metadata, spec=after.spec).policy
    assert isinstance(left, NvidiaDriver)
    assert isinstance(planned, NvidiaDriver)
    assert planned.spec == left.spec
    assert left.spec.node_selector == {"a": "z", "c": "x"}
    assert left.spec.upgrade_policy.max_parallel_upgrades == 4
    assert left.spec.upgrade_policy.max_unavailable == "25%"


# A drain


@pytest.fixture
async def fleet(sandbox: Sandbox) -> AsyncIterator[KubeletFleet]:
    async with sandbox.machines() as fleet:
        yield fleet


async def test_kubectl_drain_moves_pods_to_another_node(
    plane: RealKube, sandbox: Sandbox, kube: Kube, fleet: KubeletFleet
) -> None:
    """The budget allows one eviction at a time; DaemonSet pods stay."""
    nodes = [await sandbox.machine(fleet, name) for name in "ab"]
    key = f"test.example/{sandbox.prefix}drain"
    for node in nodes:
        await patch(kube, NODES, node, {"metadata": {"labels": {key: "x"}}})
    workload = replica_set("job", replicas=3, nodeSelector={key: "x"})
    deployment = {**workload, "kind": "Deployment"}
    path = f"/apis/apps/v1/namespaces/{sandbox.namespace}/deployments"
    await send_request(kube, "POST", path, body=deployment)
    await kube.create(DAEMON_SETS, daemon_set("d", selector={key: "x"}))
    await kube.create(POD_DISRUPTION_BUDGETS, budget("b", "job", minAvailable=2))

    async def running(app: str) -> list[str]:
        page = await kube.list_page(PODS, labels=f"app={app}")
        return [item.spec.node_name for item in page.items if item.status.phase == "Running"]

    async def up() -> bool:
        return len(await running("job")) == 3 and len(await running("d")) == 2

    await eventually(up)
    drained = max(nodes, key=(await running("job")).count)

    output = await kubectl(
        plane,
        sandbox,
        "drain",
        drained,
        "--ignore-daemonsets",
        "--timeout=120s",
        "--delete-emptydir-data",
    )

    assert f"node/{drained} drained" in output
    assert (await kube.get(NODES, drained)).spec.unschedulable is True
    assert drained not in await running("job")
    assert sorted(await running("d")) == nodes
    evicted = [
        revision
        for revision in await sandbox.revisions()
        if revision.verb == "evict" and revision.code == 201
    ]
    assert len(evicted) >= 2


# Rollouts


async def test_kubectl_shows_a_rollout_and_waits_for_its_conditions(
    plane: RealKube, sandbox: Sandbox, kube: Kube
) -> None:
    name = await create_rollout(sandbox, kube)
    paused = RolloutCondition(
        type=ConditionType.PAUSED,
        status=ConditionStatus.TRUE,
        reason="Brake",
        last_transition_time="2026-11-01T10:00:00Z",
    )
    status = RolloutStatus(
        version="580.95.05",
        target="3f2a9c1e" * 4,
        short_target="3f2a9c1e",
        progress="0/3",
        counts=Counts(total=3),
        conditions=(paused,),
    )
    await put_status(kube, name, status)
    shown = await kubectl(plane, sandbox, "get", "rollouts", name)
    header, row = (re.split(r" {2,}", line.strip()) for line in shown.splitlines())
    assert header[:-1] == [
        "NAME", "TARGET", "PHASE", "DONE", "IN FLIGHT", "FAILED", "WAITING", "ETA", "BECAUSE",
    ]  # fmt: skip
    assert row[:-1] == [name, "580.95.05", "Proving", "0/3", "0", "0", "0"]
    wait = ("wait", f"rollout/{name}", "--timeout=120s", "--for=condition=Paused")
    assert "condition met" in await kubectl(plane, sandbox, *wait)
