"""`sluice status` and `sluice why`, with and without the scheduler."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from demo.admin import path_of
from libs.contracts.node import MIG_STATE_LABEL, STATE_LABEL
from libs.contracts.paths import DRIVER_CONTAINER
from libs.contracts.queries import (
    PoolStatus,
    QueryError,
    QueryErrorCode,
    QueryVerb,
    StatusAnswer,
    StatusQuery,
    WaitReason,
    WhyAnswer,
    WhyQuery,
)
from libs.contracts.waits import FAILED_AND_RELEASED, RESOLVED_BY, WaitCode
from libs.ctl.checks import DRIVER_APP
from libs.ctl.failures import ExitCode
from libs.kube.client import MERGE_PATCH
from libs.kube.resources import EVENTS, NAMESPACES, NODES, PODS
from libs.policy.validation import PRESENT_LABEL
from libs.runtime.clock import SystemClock
from libs.testing.apiserver.faults import Fault, RefuseRequest
from tests.component.ctl.world import (
    NEW,
    NEW_VERSION,
    OLD,
    PERSON,
    POOL,
    World,
    halted,
    make_world,
    rollout_status,
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with make_world(tmp_path) as made:
        await made.add_rollout(**rollout_status())
        await made.add_node("node-1", state="upgrade-done")
        await made.add_node("node-2", state="validation-required")
        await made.record("node-2", attempt=2, since=1.0)
        yield made


class Scheduler:
    """Answers as a scheduler would."""

    async def status(self, query: StatusQuery) -> StatusAnswer:
        pool = PoolStatus(pool=POOL, target=NEW, phase="Proving", waits={"budget": 2})
        return StatusAnswer(
            at=SystemClock().now(), leader="scheduler-1", sources={"nodes": 0.5}, pools=(pool,)
        )

    async def why(self, query: WhyQuery) -> WhyAnswer | QueryError:
        if query.node != "node-2":
            return QueryError(code=QueryErrorCode.NOT_FOUND, message=f"Node {query.node} not found")
        detail = f"pod train of target {NEW} uses the GPUs\x1b[2J"
        wait = WaitReason(
            code=WaitCode.JOBS, detail=detail, since=SystemClock().now() - 90, who="its owner"
        )
        return WhyAnswer(node="node-2", pool=POOL, state="wait-for-jobs-required", wait=wait)


async def answered(world: World) -> None:
    await world.start_nats()
    scheduler = Scheduler()
    await world.answer({QueryVerb.STATUS: scheduler.status, QueryVerb.WHY: scheduler.why})


async def test_status_shows_pools_the_nodes_that_are_not_done_and_no_digest(world: World) -> None:
    ended = await world.run("status")
    assert ended.code == ExitCode.DONE
    assert ended.err == ""
    first, second, *_ = ended.out.splitlines()
    assert first.split() == ["POOL", "DRIVER", "PHASE", "DONE", "IN", "FLIGHT", "FAILED"]
    assert second.split() == [POOL, NEW_VERSION, "Proving", "1/3", "1", "0"]
    assert "node-2" in ended.out
    assert "node-1" not in ended.out
    assert NEW[:8] not in ended.out
    assert "pools and nodes: from Kubernetes (http://127.0.0.1:" in ended.out
    assert "waits: not from the scheduler: NATS: no installation of Sluice is found" in ended.out


async def test_status_and_doctor_tell_of_a_driver_that_crashes_before_its_node_fails(
    world: World,
) -> None:
    await world.record("node-2", in_flight=True, attempt=2, since=1.0)
    await world.label("node-2", STATE_LABEL, "pod-restart-required")
    await world.label("node-2", PRESENT_LABEL, "true")
    await world.kube.create(NAMESPACES, {"metadata": {"name": "sluice"}})
    metadata = {"name": "driver-x", "namespace": "sluice", "labels": {"app": DRIVER_APP}}
    container = {"name": DRIVER_CONTAINER, "image": "r.example/driver"}
    spec = {"nodeName": "node-2", "containers": [container]}
    await world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    crashed = {
        **container,
        "ready": False,
        "restartCount": 1,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1}},
    }
    path = f"{PODS.path(namespace='sluice', name='driver-x')}/status"
    body = {"status": {"containerStatuses": [crashed]}}
    await world.kube.request("PATCH", path, body=body, content_type=MERGE_PATCH)
    out = (await world.run("status")).out
    (row,) = (line for line in out.splitlines() if line.startswith("node-2"))
    assert row.endswith("driver exited with code 1, 2 times; attempt 2")
    found = (await world.run("doctor", "--namespace", "sluice")).out
    assert "warning  node-2: the driver exited with code 1, 2 times" in found
    assert "do: `sluice why node-2`" in found


async def test_status_shows_a_node_that_a_person_has_and_that_is_done_with_an_earlier_version(
    world: World,
) -> None:
    for name, target in (("node-1", NEW), ("node-9", OLD)):
        if name == "node-9":
            await world.add_node(name, state="upgrade-done")
        await world.record(name, target=target)
    assert (await world.run("lease", "take", "node-9", "--reason", "a riser")).code == 0
    out = (await world.run("status")).out
    (row,) = (line for line in out.splitlines() if line.startswith("node-9"))
    assert row.split() == ["node-9", "upgrade-done", NEW_VERSION, "is", "wanted;", "leased"]
    assert "node-1 " not in out


async def test_status_shows_a_node_that_is_done_and_cordoned(world: World) -> None:
    for name in ("node-1", "node-2"):
        await world.kube.request(
            "PATCH",
            NODES.path(name=name),
            body={"spec": {"unschedulable": True}},
            content_type=MERGE_PATCH,
        )
    await world.add_node("node-3", state="upgrade-done")
    out = (await world.run("status")).out
    (row,) = (line for line in out.splitlines() if line.startswith("node-1"))
    assert row.split() == ["node-1", "upgrade-done", "cordoned"]
    assert "node-3" not in out
    json = (await world.run("status", "-o", "json")).json
    assert [(node["name"], node["cordoned"]) for node in json["nodes"]] == [
        ("node-1", True),
        ("node-2", True),
    ]


async def test_status_shows_a_node_that_is_done_and_has_the_skip_label(world: World) -> None:
    await world.add_node("node-3", state="upgrade-done")
    assert (await world.run("upgrade", "skip", "node-1")).code == ExitCode.DONE
    out = (await world.run("status")).out
    (row,) = (line for line in out.splitlines() if line.startswith("node-1"))
    assert row.split() == ["node-1", "upgrade-done", "skipped"]
    assert "node-3" not in out


async def test_status_shows_a_node_that_is_done_and_not_divided_as_asked(world: World) -> None:
    for name, state in (("node-1", "failed"), ("node-2", "success")):
        seen = await world.kube.get(NODES, name)
        labels = {"metadata": {"labels": {MIG_STATE_LABEL: state}}}
        revision = seen.metadata.resource_version
        await world.kube.merge(NODES, name, labels, resource_version=revision)
    rows = {
        line.split()[0]: line.split()
        for line in (await world.run("status")).out.splitlines()
        if line
    }
    assert rows["node-1"] == ["node-1", "upgrade-done", "MIG", "failed"]
    assert "MIG" not in rows["node-2"]


async def test_status_adds_waits_and_their_age_from_the_scheduler(world: World) -> None:
    await answered(world)
    ended = await world.run("status")
    assert f"{POOL} waits: 2 budget" in ended.out
    assert "waits: from scheduler scheduler-1, 0 s old" in ended.out
    json = (await world.run("status", "-o", "json")).json
    assert json["pools"][0]["waits"] == {"budget": 2}
    assert json["sources"][1]["behind"] == {"nodes": 0.5}


async def test_status_of_a_pool_shows_all_its_nodes(world: World) -> None:
    json = (await world.run("status", POOL, "-o", "json")).json
    assert [node["name"] for node in json["nodes"]] == ["node-2"]
    assert json["nodes"][0]["attempt"] == 2


async def test_status_comes_from_the_scheduler_while_kubernetes_is_away(world: World) -> None:
    await answered(world)
    world.server.faults.add(Fault(effect=RefuseRequest(503), user=PERSON))
    ended = await world.run("status")
    assert (ended.code, ended.err) == (ExitCode.NOT_REACHABLE, "")
    assert "pools and waits: from scheduler scheduler-1" in ended.out
    assert "nodes: not from Kubernetes" in ended.out


@pytest.mark.parametrize("asks", [False, True])
async def test_status_shows_what_one_may_read_and_names_the_rest(world: World, asks: bool) -> None:
    if asks:
        await answered(world)
    world.server.faults.add(Fault(effect=RefuseRequest(403), kind="Node", user=PERSON))
    ended = await world.run("status")
    assert (ended.code, ended.err) == (ExitCode.NOT_ALLOWED, "")
    assert f"{POOL}  {NEW_VERSION}" in ended.out
    assert "pools: from Kubernetes (http" in ended.out
    assert "nodes: not from Kubernetes (http" in ended.out
    json = await world.run("status", "-o", "json")
    assert json.code == ExitCode.NOT_ALLOWED
    assert msgspec.json.decode(json.out)["exit_code"] == ExitCode.NOT_ALLOWED

    world.server.faults.clear()
    world.server.faults.add(Fault(effect=RefuseRequest(403), kind="Rollout", user=PERSON))
    ended = await world.run("status")
    assert (ended.code, ended.err) == (ExitCode.NOT_ALLOWED, "")
    assert "node-2" in ended.out
    assert "no pool" not in ended.out
    assert (POOL in ended.out) is asks
    assert "nodes: from Kubernetes (http" in ended.out
    assert "pools: not from Kubernetes (http" in ended.out
    assert (await world.run("status", "node-2")).code == ExitCode.DONE
    unknown = await world.run("status", "node-9")
    code = ExitCode.NOT_FOUND if asks else ExitCode.NOT_ALLOWED
    assert (unknown.code, unknown.err.count("\n")) == (code, 1)


async def test_status_without_the_right_to_anything_is_one_line(world: World) -> None:
    world.server.faults.add(Fault(effect=RefuseRequest(403), verbs=("list",), user=PERSON))
    ended = await world.run("status")
    assert (ended.code, ended.out, ended.err.count("\n")) == (ExitCode.NOT_ALLOWED, "", 1)


async def test_why_tells_the_wait_and_who_can_end_it(world: World) -> None:
    await answered(world)
    ended = await world.run("why", "node-2")
    assert ended.code == ExitCode.DONE
    assert ended.out.startswith("node-2 waits: jobs\n")
    assert f"because: pod train of target {NEW_VERSION} uses the GPUs" in ended.out
    assert "can be ended by: its owner" in ended.out
    assert "\x1b" not in ended.out


@pytest.mark.parametrize(
    ("code", "brake", "told"),
    [
        (WaitCode.PAUSED, "Pause", f"an administrator, by `sluice upgrade resume {POOL}`"),
        (WaitCode.FROZEN, "Freeze", f"an administrator, by `sluice upgrade resume {POOL}`"),
        (WaitCode.PAUSED, "None", RESOLVED_BY[WaitCode.PAUSED]),
        (
            WaitCode.HALTED,
            "None",
            (
                f"an administrator, by `sluice upgrade release {NEW_VERSION} {POOL} --failures"
                f" 2`; the author of the policy, by another driver"
            ),
        ),
        (
            WaitCode.FAILED,
            "None",
            (
                f"an administrator, by `sluice upgrade release {NEW_VERSION} {POOL} --failures"
                f" 2` (the retry follows by itself); the author of the policy, by another driver"
            ),
        ),
    ],
)
async def test_why_has_the_command_that_ends_a_brake_or_a_halt(
    world: World, code: WaitCode, brake: str, told: str
) -> None:
    await world.start_nats()
    path = path_of("sluice.dev/v1alpha1", "Rollout", name=POOL)
    body = {"spec": {"brake": brake}}
    await world.kube.request("PATCH", path, body=body, content_type=MERGE_PATCH)
    status = {"status": halted("u1", "u2")}
    await world.kube.request("PATCH", f"{path}/status", body=status, content_type=MERGE_PATCH)

    who = FAILED_AND_RELEASED if code is WaitCode.FAILED else RESOLVED_BY[code]

    async def why(query: WhyQuery) -> WhyAnswer:
        reason = WaitReason(code=code, detail="as told", since=1.0, who=who)
        last = NEW if code is WaitCode.FAILED else "1" * 32
        return WhyAnswer(node=query.node, pool=POOL, target=last, wait=reason)

    await world.answer({QueryVerb.WHY: why})
    ended = await world.run("why", "node-2")
    assert f"  can be ended by: {told}\n" in ended.out
    data = (await world.run("why", "node-2", "-o", "json")).json
    assert data["why"]["wait"]["who"] == who


async def test_why_without_nats_shows_what_kubernetes_has(world: World) -> None:
    about = {"kind": "Node", "apiVersion": "v1", "name": "node-2"}
    event = {
        "metadata": {"name": "one"},
        "involvedObject": about,
        "reason": "Upgrade",
        "message": "the driver is validated",
        "type": "Normal",
    }
    await world.kube.create(EVENTS, event, namespace="default")
    ended = await world.run("why", "node-2")
    assert ended.code == ExitCode.DONE
    assert ended.out.startswith("node-2: validation-required\n")
    assert "the driver is validated" in ended.out
    assert "why: not from the scheduler: NATS: no installation of Sluice is found" in ended.out


async def test_the_scheduler_does_not_know_a_node_that_has_no_gpu(world: World) -> None:
    await answered(world)
    await world.add_node("node-3")
    ended = await world.run("why", "node-3")
    assert ended.code == ExitCode.DONE
    assert ended.out.startswith(
        "node-3 is not managed by Sluice\n"
        "  because: no GPU has been found on it: it has no label nvidia.com/gpu.present, which the"
        " discovery agent writes once it runs there and sees one\n"
    )
    assert "not from" not in ended.out
    assert "not found" not in ended.out
    managed = await world.run("why", "node-1")
    assert "why: not from the scheduler: Node node-1 not found" in managed.out


@pytest.mark.parametrize("columns", ["80", "40"])
async def test_each_failure_is_one_line(world: World, columns: str) -> None:
    cases = {
        ("why", "node-9"): (ExitCode.NOT_FOUND, "there is no Node 'node-9'"),
        ("status", "nothing"): (
            ExitCode.NOT_FOUND,
            f"neither a pool nor a Node 'nothing'; pools: {POOL}",
        ),
        ("plan",): (ExitCode.NOT_FOUND, "no installation of Sluice is found"),
        ("events",): (ExitCode.NOT_FOUND, "no installation of Sluice is found"),
        ("plan", "--nats", "nats://127.0.0.1:1"): (ExitCode.NOT_REACHABLE, "no connection to NATS"),
        ("plan", "--finish-by", "soon"): (
            ExitCode.WRONG_ARGUMENTS,
            "'soon' is no time",
        ),
        ("events", "--since", "0001-01-01"): (ExitCode.WRONG_ARGUMENTS, "'0001-01-01' is no time"),
        ("plan", "--max-parallel", "9" * 26): (ExitCode.WRONG_ARGUMENTS, "is not in the range"),
        ("status", "--kubeconfig", "/none"): (ExitCode.NOT_REACHABLE, "there is no such file"),
        ("status", "--cluster", "*"): (ExitCode.WRONG_ARGUMENTS, "--cluster: '*' cannot be"),
        ("status", "--cluster", ""): (ExitCode.WRONG_ARGUMENTS, "--cluster: '' cannot be"),
        ("gpus", "--cluster", "a.>"): (ExitCode.WRONG_ARGUMENTS, "--cluster: 'a.>' cannot be"),
        ("why", "x" * 5000): (ExitCode.NOT_FOUND, f"there is no Node '{'x' * 198}…"),
        ("upgrade", "release", ""): (ExitCode.NOT_FOUND, "sluice: '' is not halted; halted: none"),
        ("upgrade", "release", "1", "--failures", "x"): (
            ExitCode.WRONG_ARGUMENTS,
            "'x' is not a whole number; `sluice upgrade release -h`",
        ),
        ("why", "n", "--namespace", "../x"): (ExitCode.WRONG_ARGUMENTS, "--namespace: '../x'"),
    }
    for arguments, (code, text) in cases.items():
        ended = await world.run(*arguments, COLUMNS=columns)
        assert (ended.code, ended.out) == (code, ""), arguments
        assert ended.err.count("\n") == 1
        assert ended.err.startswith("sluice: ")
        assert text in ended.err


async def test_a_user_without_rights_is_told_so(world: World) -> None:
    world.server.faults.add(Fault(effect=RefuseRequest(403), user=PERSON))
    ended = await world.run("status")
    assert ended.code == ExitCode.NOT_ALLOWED
    assert "GET /apis/sluice.dev/v1alpha1/rollouts" in ended.err
    assert "grant it in RBAC, or ask an administrator to; `sluice doctor` lists" in ended.err


async def test_why_answers_without_the_right_to_read_events(world: World) -> None:
    world.server.faults.add(
        Fault(effect=RefuseRequest(403), user=PERSON, kind="Event", verbs=("list",))
    )
    ended = await world.run("why", "node-1")
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    assert ended.out.startswith("node-1")
    assert "Events: not from Kubernetes (http" in ended.out
    assert "grant it in RBAC" in ended.out


async def test_a_cluster_without_sluice_is_told_so(world: World) -> None:
    await world.kube.request(
        "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rollouts.sluice.dev"
    )
    ended = await world.run("status")
    assert ended.code == ExitCode.NOT_FOUND
    assert "Sluice is not installed in http" in ended.err
    assert "install the CustomResourceDefinition rollouts.sluice.dev" in ended.err


async def test_a_rollout_of_a_newer_release_that_cannot_be_read_is_named(world: World) -> None:
    await world.add_rollout("other", **rollout_status(epoch=-1))
    ended = await world.run("status")
    assert ended.code == ExitCode.UNEXPECTED
    assert "Rollout other cannot be read" in ended.err
    assert "is this command older than the services?" in ended.err
