"""The command beside a running GPU Operator, without Sluice: it reads, and explains."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.ctl.failures import ExitCode
from libs.kube.resources import EVENTS
from libs.policy.crds import crd_manifests
from libs.testing.apiserver.faults import Fault, RefuseRequest
from tests.component.ctl.operator_fleet import OperatorFleet, make_fleet
from tests.component.ctl.world import PERSON, World


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[OperatorFleet]:
    async with make_fleet(tmp_path) as made:
        await made.add_gpu_node("node-1", state="upgrade-done")
        await made.add_gpu_node("node-2", state="upgrade-failed", revision="old", cordoned=True)
        await made.add_gpu_node("node-3", state="upgrade-required", revision="old")
        await made.add_gpu_node("node-4", state="upgrade-done")
        await made.finish()
        yield made


async def test_status_tells_pools_nodes_and_the_trap_that_stops_the_fleet(
    fleet: OperatorFleet,
) -> None:
    ended = await fleet.run("status")
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    assert "GPU Operator in namespace gpu-operator; Sluice is not installed" in ended.out
    assert ["cluster-policy", "580.95.05", "2/4", "1", "0", "1"] in [
        line.split() for line in ended.out.splitlines()
    ]
    reason = "maxParallelUpgrades is 1; in progress: 1, of which node-2 failed"
    assert f"cluster-policy starts no node: {reason}" in ended.out
    assert "failed-nodes-hold-places: failed nodes (node-2) count as in progress" in ended.out
    json = (await fleet.run("status", "-o", "json")).json
    assert [node["name"] for node in json["nodes"]] == ["node-2", "node-3"]
    assert json["operator"]["is_live"]
    one = (await fleet.run("status", "cluster-policy", "-o", "json")).json
    assert len(one["nodes"]) == 4


async def test_the_page_shows_what_the_command_says(fleet: OperatorFleet) -> None:
    said = (await fleet.run("status")).out
    page = (Path(__file__).parents[3] / "docs/migrate.md").read_text()
    shown = page.partition("    $ sluice status\n")[2].partition("\n**Rights.**")[0]
    assert [line.strip() for line in shown.splitlines() if line] == [
        line.strip() for line in said.splitlines() if line
    ][:-1]


async def test_an_operator_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    async with make_fleet(tmp_path) as fleet:
        path = "/apis/coordination.k8s.io/v1/namespaces/gpu-operator/leases/53822513.nvidia.com"
        renewed = "2020-01-01T00:00:00.000000Z"
        patch = {"spec": {"renewTime": renewed}}
        await fleet.kube.request(
            "PATCH", path, body=patch, content_type="application/merge-patch+json"
        )
        assert "it is away" in (await fleet.run("status")).out


async def test_why_names_what_the_eviction_of_a_node_meets(fleet: OperatorFleet) -> None:
    await fleet.add_gpu_node("node-5", state="pod-deletion-required", revision="old")
    await fleet.finish()
    await fleet.add_job("job", "node-5", volumes=[{"name": "data", "emptyDir": {}}])
    ended = await fleet.run("why", "node-5")
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    assert ended.out.startswith("node-5: pod-deletion-required\n")
    obstacle = (
        "default/job is not evicted: it has an emptyDir, and podDeletion.deleteEmptyDir is off"
    )
    assert f"because: {obstacle}" in ended.out
    assert "can be ended by: the owner of the pod, or the author of the policy" in ended.out
    assert "then the node becomes upgrade-failed" in ended.out


async def test_why_names_the_disruption_budget(fleet: OperatorFleet) -> None:
    await fleet.add_gpu_node("node-5", state="pod-deletion-required", revision="old")
    await fleet.add_job("job", "node-5")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "train"}}, "maxUnavailable": 0},
    }
    await fleet.apply(budget)
    ended = await fleet.run("why", "node-5")
    assert "the disruption budget default/train refuses the eviction of default/job" in ended.out
    plan = await fleet.run("plan")
    assert "disruption budget default/train refuses now: default/job" in plan.out


async def test_why_names_the_jobs_that_the_policy_waits_for(tmp_path: Path) -> None:
    wait = {"podSelector": "app=train", "timeoutSeconds": 3600}
    async with make_fleet(tmp_path, waitForCompletion=wait) as fleet:
        await fleet.add_gpu_node("node-1", state="wait-for-jobs-required", revision="old")
        await fleet.finish()
        await fleet.add_job("job", "node-1")
        out = (await fleet.run("why", "node-1")).out
        assert "because: jobs run that the policy waits for: default/job" in out
        assert "can be ended by: the owners of the jobs" in out


async def test_the_plan_compares_the_rules_of_both(fleet: OperatorFleet) -> None:
    await fleet.add_job("job", "node-1")
    json = (await fleet.run("plan", "--version", "590.48.01", "-o", "json")).json
    assert len(json["nodes"]) == 4
    assert json["operator"]["at_once"] == 0
    assert "node-2 failed" in json["operator"]["because"]
    assert json["sluice"]["at_once"] == 1
    assert json["sluice"]["seconds"] is not None
    text = (await fleet.run("plan", "--version", "590.48.01", "--max-parallel", "3")).out
    assert text.startswith("cluster-policy to 590.48.01\n")
    assert "a node takes: 4 min, as in NVIDIA's documentation" in text
    assert "node-1 away: no other node has GPUs for: default/job" in text


async def test_a_node_takes_as_long_as_the_events_say(fleet: OperatorFleet) -> None:
    for state, at in (("cordon-required", "10:00:00"), ("upgrade-done", "10:06:30")):
        about = {"kind": "Node", "apiVersion": "v1", "name": "node-1"}
        event = {
            "metadata": {"name": state},
            "involvedObject": about,
            "reason": "GPUDriverUpgrade",
            "message": f"Successfully updated node state label to {state}",
            "lastTimestamp": f"2026-05-01T{at}Z",
        }
        await fleet.kube.create(EVENTS, event, namespace="default")
    ended = await fleet.run("plan")
    assert "a node takes: 6 min 30 s, the median of 1 upgrade in its Events" in ended.out


async def test_doctor_looks_at_the_operator_and_its_traps(fleet: OperatorFleet) -> None:
    ended = await fleet.run("doctor", "-o", "wide")
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    assert "GPU Operator: gpu-operator-1 leads in namespace gpu-operator" in ended.out
    assert "trap failed-nodes-hold-places" in ended.out
    assert "Sluice: it is not installed" in ended.out
    assert "NATS" not in ended.out
    named = await fleet.run("doctor", "--nats", "nats://127.0.0.1:1")
    assert "fault    NATS: no connection" in named.out


async def test_doctor_names_an_operator_beside_sluice(fleet: OperatorFleet) -> None:
    await World.install(fleet)
    ended = await fleet.run("doctor")
    assert "gpu-operator-1 leads in namespace gpu-operator, so Sluice stands back" in ended.out
    assert "There is no pool" in (await fleet.run("status")).out


async def test_nothing_is_written(fleet: OperatorFleet) -> None:
    before = len(fleet.server.journal)
    commands = (
        ("status",),
        ("status", "node-3"),
        ("why", "node-2"),
        ("plan",),
        ("plan", "--version", "590.48.01"),
        ("doctor",),
    )
    for arguments in commands:
        assert (await fleet.run(*arguments)).code == ExitCode.DONE, arguments
    assert len(fleet.server.journal) == before


async def test_what_may_not_be_read_is_named_and_hides_nothing_else(fleet: OperatorFleet) -> None:
    fault = Fault(effect=RefuseRequest(403), user=PERSON, kind="DaemonSet")
    fleet.server.faults.add(fault)
    ended = await fleet.run("status")
    assert ended.code == ExitCode.DONE
    assert "daemonsets: not from Kubernetes" in ended.out


async def test_who_may_read_no_kind_of_sluice_sees_the_fleet_all_the_same(
    fleet: OperatorFleet,
) -> None:
    await fleet.apply(crd_manifests()["rollouts.sluice.dev"])
    fleet.server.faults.add(Fault(effect=RefuseRequest(403), user=PERSON, kind="Rollout"))
    assert (await fleet.run("status")).code == ExitCode.NOT_ALLOWED
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rollouts.sluice.dev"
    await fleet.kube.request("DELETE", definition)
    assert "looked after by NVIDIA's GPU Operator" in (await fleet.run("status")).out


async def test_what_is_not_there_is_one_line(fleet: OperatorFleet) -> None:
    cases = {
        ("status", "node-9"): "neither a pool nor a Node with GPUs 'node-9'; pools: cluster-policy",
        ("why", "node-9"): "there is no Node 'node-9'",
        ("plan", "other"): "there is no pool 'other'; pools: cluster-policy",
    }
    for arguments, text in cases.items():
        ended = await fleet.run(*arguments)
        assert (ended.code, ended.out) == (ExitCode.NOT_FOUND, ""), arguments
        assert text in ended.err
    ended = await fleet.run("plan", "--finish-by", "2h")
    assert ended.code == ExitCode.WRONG_ARGUMENTS
    assert "--finish-by needs Sluice's scheduler" in ended.err


async def test_a_cluster_without_operator_and_without_sluice_is_told_so(tmp_path: Path) -> None:
    async with make_fleet(tmp_path) as fleet:
        kinds = ("clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com")
        for name in kinds:
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
            await fleet.kube.request("DELETE", path)
        lease = "/apis/coordination.k8s.io/v1/namespaces/gpu-operator/leases/53822513.nvidia.com"
        await fleet.kube.request("DELETE", lease)
        ended = await fleet.run("status")
        assert ended.code == ExitCode.NOT_FOUND
        assert "Sluice is not installed" in ended.err
