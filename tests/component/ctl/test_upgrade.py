"""`sluice upgrade`: what is written through Kubernetes, and what is refused."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from socket import gethostname

import pytest

from demo.admin import path_of
from libs.contracts.node import (
    REQUEST_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
)
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.versions import check_version
from libs.kube.client import MERGE_PATCH
from libs.kube.errors import Conflict
from libs.kube.resources import NODES
from libs.testing.apiserver.faults import Delay, Fault, RefuseRequest
from tests.component.ctl.terminal import in_terminal
from tests.component.ctl.world import (
    NEW,
    NEW_VERSION,
    OLD_VERSION,
    PERSON,
    POOL,
    World,
    halted,
    make_world,
    rollout_status,
)
from tests.support import eventually

OTHER = "3" * 32
OTHER_POOL = "nvidiadriver-b"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with make_world(tmp_path) as made:
        yield made


async def test_a_person_stops_and_continues_a_rollout_without_nats(world: World) -> None:
    await world.add_rollout(**rollout_status())
    for verb, brake in (("pause", "Pause"), ("freeze", "Freeze"), ("resume", "None")):
        options = ["--yes"] if verb == "resume" else ["--reason", "bad driver"]
        ended = await world.run("upgrade", verb, *options, LOGNAME="alice")
        assert (ended.code, ended.err) == (ExitCode.DONE, "")
        assert ended.out.startswith(f"{POOL} ")
        assert (await world.rollout())["spec"]["brake"] == brake
        out = (await world.run("status")).out
        told = f"  {POOL} brake: {brake}, set by alice@{gethostname()} " in " ".join(
            out.split("\n")
        )
        assert told is (verb != "resume"), out
        assert ("bad driver" in out) is (verb != "resume"), out
    revision = (await world.rollout())["metadata"]["resourceVersion"]
    again = await world.run("upgrade", "resume", "--yes")
    assert again.out.endswith("; unchanged\n")
    assert (await world.rollout())["metadata"]["resourceVersion"] == revision


async def test_a_person_asks_for_a_version(world: World) -> None:
    await world.add_policy(OLD_VERSION)
    refused = await world.run("upgrade", "start", NEW_VERSION)
    assert refused.code == ExitCode.REFUSED
    assert f"from {OLD_VERSION} to {NEW_VERSION}, within the budget" in refused.err
    assert await world.policy_version() == OLD_VERSION
    done = await world.run("upgrade", "start", NEW_VERSION, "--yes")
    assert (done.code, done.err) == (ExitCode.DONE, "")
    assert f"wants driver {NEW_VERSION} in place of {OLD_VERSION}" in done.out
    assert "taken" not in done.out
    assert await world.policy_version() == NEW_VERSION
    again = await world.run("upgrade", "start", NEW_VERSION, POOL)
    assert again.out.endswith("already; unchanged\n")


async def test_a_branch_starts_nothing_without_precompiled_drivers(world: World) -> None:
    await world.add_policy(OLD_VERSION)
    refused = await world.run("upgrade", "start", "999", "--yes")
    assert (refused.code, refused.err.count("\n")) == (ExitCode.WRONG_ARGUMENTS, 1)
    assert (
        "ClusterPolicy cluster-policy: 999 is a branch, and the policy does not use precompiled"
        f" drivers: name a full version, like {OLD_VERSION}" in refused.err
    )
    assert await world.policy_version() == OLD_VERSION


async def test_a_start_says_that_the_pool_is_paused_and_names_no_kubectl(world: World) -> None:
    await world.add_policy(OLD_VERSION)
    path = path_of("nvidia.com/v1", "ClusterPolicy", name="cluster-policy")
    body = {"spec": {"driver": {"version": "570.1"}}}
    query = {"fieldManager": "kubectl-edit"}
    await world.kube.request("PATCH", path, query=query, body=body, content_type=MERGE_PATCH)
    started = await world.run("upgrade", "start", NEW_VERSION, "--yes")
    assert started.out.endswith("in place of 570.1. `sluice status` shows how far it is.\n")
    await world.add_rollout(**rollout_status())
    for verb, braked in (
        ("pause", "the pool is paused: nothing starts until"),
        ("freeze", "the pool is frozen: no node moves until"),
    ):
        await world.run("upgrade", verb)
        told = f"; {braked} `sluice upgrade resume {POOL}`"
        refused = await world.run("upgrade", "start", OLD_VERSION)
        assert f"tells what it costs{told}: confirm it with --yes" in refused.err
        again = await world.run("upgrade", "start", NEW_VERSION)
        assert again.out.endswith(f"already; unchanged{told}\n")
    done = await world.run("upgrade", "start", OLD_VERSION, "--yes")
    assert f"in place of {NEW_VERSION}{told}. `sluice status` shows how far it is." in done.out


async def test_a_start_says_that_the_version_is_halted_since_it_failed_before(world: World) -> None:
    await world.add_policy(OLD_VERSION)
    await world.add_rollout(**halted("u1", "u2"))
    await world.run("upgrade", "pause")
    ended = await world.run("upgrade", "start", NEW_VERSION, "--yes")
    assert f"; the pool is paused: nothing starts until `sluice upgrade resume {POOL}`" in ended.out
    assert (
        f"; driver {NEW_VERSION} is halted, as 2 nodes failed on it before: no node starts on it"
        f" until `sluice upgrade release {NEW_VERSION} {POOL} --failures 2`" in ended.out
    )
    other = await world.run("upgrade", "start", "590.1.2", "--yes")
    assert "halted" not in other.out
    assert "paused" in other.out


@pytest.mark.parametrize(
    ("manager", "owner", "line"),
    [
        (
            "helm",
            "Helm, as release sluice in the namespace gpu-operator",
            f"set `driver.version: {NEW_VERSION}` in the values and run `helm upgrade`",
        ),
        (
            "argocd-controller",
            "Argo CD",
            f"set `spec.driver.version: {NEW_VERSION}` where it takes it from",
        ),
        (
            "kubectl",
            "`kubectl apply --server-side` of a file",
            f"set `spec.driver.version: {NEW_VERSION}` where it takes it from",
        ),
    ],
)
async def test_a_version_that_a_chart_or_a_pipeline_applies_is_not_taken_from_it(
    world: World, manager: str, owner: str, line: str
) -> None:
    await world.add_policy(OLD_VERSION, manager=manager)
    start = ("upgrade", "start", NEW_VERSION, "--yes")
    refused = await world.run(*start)
    assert (refused.code, refused.err.count("\n")) == (ExitCode.REFUSED, 1)
    assert f"spec.driver.version is managed by {owner}, which meets a conflict" in refused.err
    assert f"nothing was written: {line}. `--force` takes" in refused.err
    assert await world.policy_version() == OLD_VERSION
    await world.apply_policy("570.99", manager=manager)  # it meets no conflict

    forced = await world.run(*start, "--force")
    assert (forced.code, forced.err) == (ExitCode.DONE, "")
    assert f"The field was taken from {owner}, which meets a conflict" in forced.out
    with pytest.raises(Conflict, match="kubectl-sluice"):
        await world.apply_policy("570.99", manager=manager)
    # As the answer says: the same value, and force at the next change.
    await world.apply_policy(NEW_VERSION, manager=manager)
    assert (await world.run("upgrade", "start", OLD_VERSION, "--yes")).code == ExitCode.REFUSED
    await world.apply_policy("590.1", manager=manager, force=True)
    await world.apply_policy("590.2", manager=manager)


async def test_a_version_that_a_program_writes_without_apply_is_its_too(world: World) -> None:
    await world.add_policy(OLD_VERSION)
    path = path_of("nvidia.com/v1", "ClusterPolicy", name="cluster-policy")
    body, query = {"spec": {"driver": {"version": "570.2"}}}, {"fieldManager": "helm"}
    await world.kube.request("PATCH", path, query=query, body=body, content_type=MERGE_PATCH)
    refused = await world.run("upgrade", "start", NEW_VERSION, "--yes")
    assert "managed by Helm, which may write it back if it is written here" in refused.err
    forced = await world.run("upgrade", "start", NEW_VERSION, "--yes", "--force")
    assert "The field is written by Helm too, which may write it back: set" in forced.out


async def test_what_cannot_be_a_version_is_refused_before_anything_is_read(world: World) -> None:
    await world.add_policy(OLD_VERSION)
    for arguments in (("upgrade", "start", "banana", "--yes"), ("plan", "--version", "banana")):
        ended = await world.run(*arguments)
        assert (ended.code, ended.err.count("\n")) == (ExitCode.WRONG_ARGUMENTS, 1)
        assert "'banana' cannot be a driver version: name one in digits and dots" in ended.err
    assert await world.policy_version() == OLD_VERSION
    for legal in ("580", "580.95", "580.95.05-grid", "v580.95.05", f"sha256:{'a' * 64}"):
        check_version(legal)
    for wrong in (
        "",
        "580.",
        "580 ",
        "580.95.05x",
        "latest",
        "R580",
        "-580",
        "580/x",
        "\u0665",
        "5" * 7,
    ):
        with pytest.raises(Failure, match="cannot be a driver version"):
            check_version(wrong)
    for long in ("5" * 300, f"580-{'x' * 60}"):
        with pytest.raises(Failure, match="cannot be a driver version"):
            check_version(long)


async def test_the_pool_of_a_version_has_to_be_clear(world: World) -> None:
    none = await world.run("upgrade", "start", NEW_VERSION)
    assert (none.code, "neither an NVIDIADriver nor" in none.err) == (ExitCode.NOT_FOUND, True)
    await world.add_policy(OLD_VERSION)
    unknown = await world.run("upgrade", "start", NEW_VERSION, "pool-9")
    assert unknown.code == ExitCode.NOT_FOUND
    assert POOL in unknown.err


async def test_a_pool_is_named_after_the_version_or_as_an_option(world: World) -> None:
    await world.add_policy(OLD_VERSION)
    await world.add_rollout(**halted("u1"))
    for pool in ((POOL,), ("--pool", POOL), (POOL, "--pool", POOL)):
        for verb in (("start", NEW_VERSION), ("release", NEW_VERSION), ("freeze",), ("resume",)):
            options = () if verb == ("freeze",) else ("--yes",)
            ended = await world.run("upgrade", *verb, *pool, *options)
            assert (ended.code, ended.err) == (ExitCode.DONE, "")
    two = await world.run("upgrade", "pause", POOL, "--pool", OTHER_POOL)
    assert two.code == ExitCode.WRONG_ARGUMENTS
    assert f"{POOL} and --pool {OTHER_POOL} are two pools: name one; " in two.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("upgrade", "start"), "missing argument 'VERSION'; `sluice upgrade start -h` tells"),
        (("status", "--nonsense"), "no such option: --nonsense; `sluice status -h` tells"),
        (("nonsense",), "no such command 'nonsense'; `sluice -h` tells"),
        (("events", "-o", "x"), "invalid value for '--output' / '-o': 'x' is not one of"),
    ],
)
async def test_wrong_arguments_are_told_in_one_line(
    world: World, arguments: tuple[str, ...], said: str
) -> None:
    ended = await world.run(*arguments)
    assert (ended.code, ended.out) == (ExitCode.WRONG_ARGUMENTS, "")
    assert ended.err.startswith(f"sluice: {said}")
    assert ended.err.count("\n") == 1


async def test_without_a_verb_all_are_listed(world: World) -> None:
    ended = await world.run("lease")
    assert ended.code == ExitCode.WRONG_ARGUMENTS
    assert ended.err.startswith("Usage: ")
    assert "  take " in ended.err


async def test_what_drains_nodes_needs_a_confirmation(world: World) -> None:
    await world.add_rollout(**rollout_status())
    await world.run("upgrade", "pause")
    ended = await world.run("upgrade", "resume")
    assert ended.code == ExitCode.REFUSED
    assert "are drained and upgraded, within the budget: confirm it with --yes" in ended.err
    assert (await world.rollout())["spec"]["brake"] == "Pause"


async def test_an_interrupt_ends_the_question(world: World) -> None:
    await world.add_policy(OLD_VERSION)
    async with in_terminal("upgrade", "start", NEW_VERSION, environ=world.environ) as session:
        await session.shows("the nodes of ")
        await session.shows("Go on? [y/N]")
        session.process.send_signal(signal.SIGINT)
        assert await session.end() == ExitCode.INTERRUPTED
    assert await world.policy_version() == OLD_VERSION


async def test_a_name_that_no_node_can_have_is_not_asked_for(world: World) -> None:
    await world.add_node("node-1")
    for name in ("", ".", "..", "../node-1", "node-1/status", "Node-1", "node-1?limit=1"):
        for verb in (("why",), ("upgrade", "skip")):
            ended = await world.run(*verb, name)
            assert (ended.code, ended.out) == (ExitCode.NOT_FOUND, ""), name
            assert ended.err.startswith(f"sluice: there is no Node {name!r}")
    assert SKIP_LABEL not in await world.labels("node-1")


async def test_of_several_pools_one_has_to_be_named(world: World) -> None:
    for name in (POOL, OTHER_POOL):
        await world.add_rollout(name, **rollout_status())
    ended = await world.run("upgrade", "pause")
    assert ended.code == ExitCode.WRONG_ARGUMENTS
    assert ended.err == (
        f"sluice: there are several pools: {POOL}, {OTHER_POOL}; name one, or all with"
        " `sluice upgrade pause --all`\n"
    )
    for verb in ("freeze", "resume"):
        assert f"`sluice upgrade {verb} --all`" in (await world.run("upgrade", verb)).err
    both = await world.run("upgrade", "pause", OTHER_POOL, "--all")
    assert (both.code, both.out) == (ExitCode.WRONG_ARGUMENTS, "")
    await world.run("upgrade", "pause", OTHER_POOL)
    assert (await world.rollout())["spec"]["brake"] == "None"
    everything = await world.run("upgrade", "pause", "--all")
    assert everything.out.count("paused") == 2
    unknown = await world.run("upgrade", "pause", "pool-9")
    assert unknown.code == ExitCode.NOT_FOUND


async def test_a_version_is_released_by_its_name(world: World) -> None:
    await world.add_rollout(**halted("u1", "u2"))
    ended = await world.run("upgrade", "release", NEW_VERSION, "--failures", "2", "--yes")
    assert ended.code == ExitCode.DONE
    assert ended.out == (
        f"{POOL} is released: 2 failures of {NEW_VERSION} are accepted;"
        " the next failure halts the pool again\n"
    )
    assert (await world.rollout())["spec"]["release"] == {"target": NEW, "failures": 2}


async def test_a_release_that_would_change_nothing_is_refused(world: World) -> None:
    await world.add_rollout(**halted("u1", "u2"))
    few = await world.run("upgrade", "release", NEW_VERSION, "--failures", "1", "--yes")
    assert few.code == ExitCode.REFUSED
    assert "accept 2 failures at least" in few.err
    unknown = await world.run("upgrade", "release", "1.2.3", "--yes")
    assert unknown.code == ExitCode.NOT_FOUND
    assert f"halted: {NEW_VERSION} in {POOL}" in unknown.err


async def test_a_version_of_several_targets_is_listed_to_choose_from(world: World) -> None:
    status = halted("u1")
    await world.add_rollout(**status)
    targets = {OTHER: {"threshold": 1, "failed": ["u2"]}}
    await world.add_rollout(OTHER_POOL, **{**status, "target": OTHER, "targets": targets})
    ended = await world.run("upgrade", "release", NEW_VERSION, "--yes")
    assert ended.code == ExitCode.WRONG_ARGUMENTS
    assert f"one: {POOL} --target {NEW[:8]} (1 node failed)" in ended.err
    assert f"; {OTHER_POOL} --target {OTHER[:8]} (1 node failed)" in ended.err
    chosen = await world.run("upgrade", "release", NEW_VERSION, "--target", OTHER[:8], "--yes")
    assert chosen.code == ExitCode.DONE
    assert (await world.rollout(OTHER_POOL))["spec"]["release"]["target"] == OTHER


async def test_a_target_that_is_not_wanted_any_more_has_the_version_of_its_image(
    world: World,
) -> None:
    record = {"threshold": 1, "failed": ["u1"]}
    await world.add_rollout(**rollout_status(targets={OTHER: record}))
    labels = {"app": "nvidia-driver-daemonset", "nvidia.com/node.os-version": "ubuntu24.04"}
    container = {"name": "nvidia-driver-ctr", "image": "r.example/driver:575.57.08-ubuntu24.04"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    metadata = {
        "name": "sluice-driver-x",
        "namespace": "default",
        "labels": labels,
        "annotations": {"sluice.dev/target": OTHER},
    }
    spec = {"selector": {"matchLabels": {"app": labels["app"]}}, "template": template}
    daemon_set = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}
    await world.apply(daemon_set)
    ended = await world.run("upgrade", "release", "575.57.08", "--yes", SLUICE_NAMESPACE="default")
    assert ended.code == ExitCode.DONE, ended.err
    assert (await world.rollout())["spec"]["release"]["target"] == OTHER


async def test_people_label_and_annotate_nodes(world: World) -> None:
    await world.add_node("failed", state="upgrade-failed")
    await world.add_node("lost")
    for arguments in (
        ("retry", "failed", "--yes"),
        ("skip", "failed", "lost"),
        ("adopt", "lost", "--yes"),
        ("forget", "failed", "--yes"),
    ):
        ended = await world.run("upgrade", *arguments)
        assert (ended.code, ended.err) == (ExitCode.DONE, ""), arguments
    labels = await world.labels("failed")
    assert labels == {STATE_LABEL: "upgrade-required", SKIP_LABEL: "true"}
    assert (await world.annotations("lost"))[REQUEST_ANNOTATION] == "adopt"
    assert (await world.annotations("failed"))[REQUEST_ANNOTATION] == "forget"
    await world.run("upgrade", "unskip", "failed", "--yes")
    assert SKIP_LABEL not in await world.labels("failed")


async def test_a_node_in_flight_is_neither_retried_nor_forgotten(world: World) -> None:
    await world.add_node("node-1", state="pod-restart-required")
    await world.record("node-1", in_flight=True)
    before = await world.kube.get(NODES, "node-1")
    for verb, why in (
        ("retry", "its state is pod-restart-required"),
        ("forget", "is in flight"),
        ("adopt", "its record is there"),
    ):
        ended = await world.run("upgrade", verb, "node-1", "--yes")
        assert ended.code == ExitCode.REFUSED
        assert why in ended.err
    after = await world.kube.get(NODES, "node-1")
    assert after.metadata.resource_version == before.metadata.resource_version
    unknown = await world.run("upgrade", "skip", "node-9")
    assert unknown.code == ExitCode.NOT_FOUND


async def test_a_change_between_reading_and_writing_is_judged_again(world: World) -> None:
    """The node leaves its failed state while the request to retry it is on its way."""
    await world.add_node("node-1", state="upgrade-failed")
    delayed = Fault(effect=Delay(2.0, where="way"), verbs=("patch",), user=PERSON, times=1)
    active = world.server.faults.add(delayed)
    running = asyncio.create_task(world.run("upgrade", "retry", "node-1", "--yes"))
    await eventually(lambda: active.hit_count == 1)
    labels = {STATE_LABEL: "validation-required"}
    node = await world.kube.get(NODES, "node-1")
    await world.kube.merge(
        NODES,
        "node-1",
        {"metadata": {"labels": labels}},
        resource_version=node.metadata.resource_version,
    )
    ended = await running
    assert ended.code == ExitCode.REFUSED
    assert "its state is validation-required" in ended.err
    assert await world.labels("node-1") == labels


async def test_a_write_that_meets_another_one_is_made_again(world: World) -> None:
    await world.add_rollout(**rollout_status())
    conflict = Fault(effect=RefuseRequest(409), verbs=("patch",), user=PERSON, times=2)
    active = world.server.faults.add(conflict)
    ended = await world.run("upgrade", "pause")
    assert ended.code == ExitCode.DONE
    assert active.hit_count == 2
    assert (await world.rollout())["spec"]["brake"] == "Pause"


async def test_a_user_who_may_not_write_is_told_so(world: World) -> None:
    await world.add_rollout(**rollout_status())
    world.server.faults.add(Fault(effect=RefuseRequest(403), verbs=("patch",), user=PERSON))
    ended = await world.run("upgrade", "pause")
    assert ended.code == ExitCode.NOT_ALLOWED
    assert f"PATCH /apis/sluice.dev/v1alpha1/rollouts/{POOL}" in ended.err
