"""`sluice plan`, `events`, `gpus` and `version`."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.bus.port import BusUnavailable
from libs.contracts import subjects
from libs.contracts.events import (
    EditEvent,
    GrantEvent,
    LeaderEvent,
    PlanEvent,
    PlannedTime,
    RolloutEvent,
    StepEvent,
    WaitEvent,
)
from libs.contracts.queries import (
    PlanAnswer,
    PlanLimits,
    PlannedNode,
    PlanQuery,
    PoolStatus,
    QueryError,
    QueryErrorCode,
    QueryVerb,
    StatusAnswer,
    StatusQuery,
)
from libs.contracts.waits import WaitCode
from libs.ctl.failures import ExitCode, bus_failure
from libs.policy.validation import PRESENT_LABEL
from tests.component.ctl.world import (
    NEW,
    NEW_VERSION,
    POOL,
    T0,
    World,
    make_world,
    rollout_status,
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with make_world(tmp_path, nats=True) as made:
        await made.add_rollout(**rollout_status())
        yield made


class Scheduler:
    def __init__(self, *pools: str, busy_for: int = 0, is_done: bool = False) -> None:
        self.pools = pools
        self.is_done = is_done
        """Whether there is nothing to do."""
        self.busy_for = busy_for
        """Plans that are refused because another is being computed."""
        self.asked: list[PlanQuery] = []

    async def status(self, query: StatusQuery) -> StatusAnswer:
        return StatusAnswer(at=T0, pools=tuple(PoolStatus(pool=pool) for pool in self.pools))

    async def plan(self, query: PlanQuery) -> PlanAnswer | QueryError:
        self.asked.append(query)
        if len(self.asked) <= self.busy_for:
            return QueryError(code=QueryErrorCode.NOT_READY, message="another plan is computed")
        if query.driver_version == "999.1":
            return QueryError(code=QueryErrorCode.UNREADABLE, message="no such version")
        policy = PlanLimits(max_unavailable="1")
        limits = PlanLimits(
            max_unavailable=query.max_unavailable or "1", max_parallel=query.max_parallel or 0
        )
        end = 120.0 if limits == policy else 60.0
        node = PlannedNode(node="node-1", start_p50=0.0, end_p50=end, end_p95=1.5 * end)
        return PlanAnswer(
            pool=query.pool,
            target=NEW,
            nodes=() if self.is_done else (node,),
            makespan_p50=end,
            makespan_p95=1.5 * end,
            limits=limits,
            policy_limits=policy,
        )


async def test_plan_asks_about_the_only_pool_with_the_given_limits(world: World) -> None:
    scheduler = Scheduler(POOL)
    await world.answer({QueryVerb.STATUS: scheduler.status, QueryVerb.PLAN: scheduler.plan})
    ended = await world.run("plan", "--version", "590.1", "--max-unavailable", "20%")
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    assert ended.out.startswith(f"{POOL} to 590.1: 1 min (p50), 1 min 30 s (p95)\n  ends: ")
    assert "limits: maxUnavailable 20% (now 1)" in " ".join(ended.out.split())
    current = await world.run("plan", "--pool", POOL, "--max-parallel", "2")
    assert current.out.startswith(f"{POOL} to {NEW_VERSION}: ")
    assert [
        (query.pool, query.driver_version, query.max_unavailable, query.max_parallel)
        for query in scheduler.asked
    ] == [
        (POOL, "590.1", "20%", None),
        (POOL, "590.1", "", None),
        (POOL, "", "", 2),
        (POOL, "", "", None),
    ]


async def test_the_pool_of_a_policy_is_proposed_where_the_policy_is_named(world: World) -> None:
    scheduler = Scheduler("clusterpolicy-a", "nvidiadriver-serving")

    async def not_found(query: PlanQuery) -> QueryError:
        return QueryError(code=QueryErrorCode.NOT_FOUND, message=f"no {query.pool}")

    await world.answer({QueryVerb.STATUS: scheduler.status, QueryVerb.PLAN: not_found})
    ended = await world.run("plan", "serving")
    pools = "pools: clusterpolicy-a, nvidiadriver-serving"
    told = f"there is no pool 'serving'; {pools}; did you mean nvidiadriver-serving?"
    assert (ended.code, told in ended.err) == (ExitCode.NOT_FOUND, True)
    other = await world.run("plan", "erving")
    assert other.err.rstrip().endswith(pools)


async def test_another_limit_is_set_beside_the_one_of_now(world: World) -> None:
    scheduler = Scheduler(POOL)
    await world.answer({QueryVerb.STATUS: scheduler.status, QueryVerb.PLAN: scheduler.plan})
    wider = await world.run("plan", "--max-unavailable", "2")
    assert "limits: maxUnavailable 2 (now 1); with the limits now: 2 min (p50), 3 min (p95)" in (
        " ".join(wider.out.split())
    )
    assert wider.out.startswith(f"{POOL} to {NEW_VERSION}: 1 min (p50)")
    same = await world.run("plan", "--max-unavailable", "1")
    assert "limits: maxUnavailable 1 (as now)" in " ".join(same.out.split())
    assert "with the limits now" not in same.out
    scheduler.is_done, asked = True, len(scheduler.asked)
    assert "with the limits now" not in (await world.run("plan", "--max-unavailable", "2")).out
    assert len(scheduler.asked) == asked + 1
    scheduler.is_done = False
    json = (await world.run("plan", "--max-unavailable", "2", "-o", "json")).json
    assert json["plan"]["makespan_p50"] == 60.0
    assert json["with_policy_limits"]["makespan_p50"] == 120.0


async def test_plan_alone_shows_each_of_several_pools_in_short(world: World) -> None:
    scheduler = Scheduler(POOL, "other")
    await world.answer({QueryVerb.STATUS: scheduler.status, QueryVerb.PLAN: scheduler.plan})
    several = await world.run("plan")
    assert (several.code, several.err) == (ExitCode.DONE, "")
    first, second = f"{POOL} to {NEW_VERSION}: 2 min (p50)", f"other to {NEW_VERSION}: 2 min (p50)"
    assert [line[: len(first)] for line in several.out.splitlines()[:1]] == [first]
    assert f"\n{second}" in several.out
    times = f"The times of {POOL}, other rest on assumed durations"
    assert several.out.splitlines()[-1] == f"{times}: `sluice plan POOL` has them, and its nodes."
    assert "█" not in several.out
    for options in (("-o", "json"), ("-o", "html"), ("--max-unavailable", "2")):
        one = await world.run("plan", *options)
        assert one.code == ExitCode.WRONG_ARGUMENTS
        assert f"several pools; name one of: {POOL}, other; `sluice plan` alone shows" in one.err


async def test_that_there_is_nothing_to_show_is_said_to_people(world: World) -> None:
    await world.add_node("node-1")
    ended = await world.run("events", "--node", "node-1")
    assert (ended.code, ended.out) == (ExitCode.DONE, "")
    assert ended.err == "sluice: there are no events of node-1 in that time\n"
    await world.publish(
        (WaitEvent(pool=POOL, code=WaitCode.BUDGET), "node-1: waiting for its turn", "node-1"),
        (WaitEvent(pool=POOL), "node-1: no longer waiting", "node-1"),
    )
    unchanged = await world.run("events", "--node", "node-1")
    assert (unchanged.code, unchanged.out) == (ExitCode.DONE, "")
    assert unchanged.err == (
        "sluice: no event of node-1 in that time changed anything; -o wide shows 2 others:"
        " commands to agents, short waits\n"
    )
    unknown = await world.run("events", "--node", "node-99")
    assert (unknown.code, unknown.out) == (ExitCode.NOT_FOUND, "")
    assert "there is no Node 'node-99'" in unknown.err


async def test_events_are_those_of_a_pool_or_of_a_kind(world: World) -> None:
    await world.add_node("node-1", state="x")
    await world.record("node-1")
    await world.add_node("node-2", state="x")
    cordon = EditEvent(field="spec.unschedulable", manager="kubectl")
    halt = RolloutEvent(pool=POOL, target=NEW, before="Advancing", after="Halted")
    other = StepEvent(pool="other", token=1, before="x", after="y", target=NEW)
    await world.publish(
        (cordon, "node-1 is cordoned", "node-1"),
        (cordon, "node-2 is cordoned", "node-2"),
        (halt, f"{POOL}: Halted", ""),
        (other, "node-1 begins elsewhere", "node-1"),
    )
    for pool in ((POOL,), ("--pool", POOL)):
        shown = await world.run("events", *pool)
        assert [line.split("  ")[2] for line in shown.out.splitlines()] == [
            "node-1 is cordoned",
            f"{POOL}: Halted",
        ]
    stopped = await world.run("events", "--kind", "rollout")
    assert (stopped.out.count("\n"), "Halted" in stopped.out) == (1, True)
    assert (await world.run("events", "pool-9")).code == ExitCode.NOT_FOUND
    wrong = await world.run("events", "--kind", "brake")
    assert (wrong.code, wrong.err.count("\n")) == (ExitCode.WRONG_ARGUMENTS, 1)
    assert "'brake' is none of step, wait, grant, rollout" in wrong.err


async def test_a_plan_is_a_page_or_a_picture_in_one_file(world: World) -> None:
    scheduler = Scheduler(POOL)
    await world.answer({QueryVerb.STATUS: scheduler.status, QueryVerb.PLAN: scheduler.plan})
    page = await world.run("plan", POOL, "-o", "html")
    assert (page.code, page.err) == (ExitCode.DONE, "")
    assert page.out.startswith("<!doctype html>\n")
    picture = await world.run("plan", POOL, "-o", "svg")
    assert picture.out.startswith("<svg ")
    assert NEW_VERSION in picture.out


async def test_a_rollout_is_set_beside_its_plan(world: World) -> None:
    nothing = await world.run("plan", "--compare")
    assert nothing.code == ExitCode.NOT_FOUND
    assert "there is no rollout among the events" in nothing.err
    planned = PlannedTime(node="node-1", start=1.0, end=17.0)
    plan = PlanEvent(pool=POOL, target=NEW, plan="p", nodes=(planned,), makespan_p50=17.0)
    grant = GrantEvent(pool=POOL, target=NEW, epoch=1, nodes=("node-1",))
    done = StepEvent(pool=POOL, token=1, before="x", after="upgrade-done", target=NEW)
    complete = RolloutEvent(pool=POOL, target=NEW, before="Proven", after="Complete")
    await world.publish(
        (plan, "planned", ""),
        (grant, "granted", ""),
        (LeaderEvent(holder="s", epoch=1), "leads", ""),
        (done, "done", "node-1"),
        (complete, "complete", ""),
    )
    found = (await world.run("plan", "--compare", "-o", "json")).json
    assert (found["version"], found["makespan"], found["error"]) == (NEW_VERSION, 2.0, -0.875)
    shown = await world.run("plan", "--pool", POOL, "--compare")
    assert "error of the plan: it took 88% less than the planned 16 s" in shown.out
    page = await world.run("plan", POOL, "--compare", "--version", NEW_VERSION, "-o", "html")
    assert page.out.startswith("<!doctype html>")
    other = await world.run("plan", POOL, "--compare", "--version", "1.2.3")
    assert other.code == ExitCode.NOT_FOUND
    assert NEW_VERSION in other.err
    wrong = await world.run("plan", "--compare", "--finish-by", "2h")
    assert wrong.code == ExitCode.WRONG_ARGUMENTS


async def test_plan_passes_on_what_the_scheduler_refuses(world: World) -> None:
    scheduler = Scheduler(POOL, "other")
    await world.answer({QueryVerb.STATUS: scheduler.status, QueryVerb.PLAN: scheduler.plan})
    refused = await world.run("plan", POOL, "--version", "999.1")
    assert refused.code == ExitCode.WRONG_ARGUMENTS
    assert "the scheduler: no such version" in refused.err


async def test_plan_is_asked_for_again_while_another_is_computed(world: World) -> None:
    scheduler = Scheduler(POOL, busy_for=2)
    await world.answer({QueryVerb.PLAN: scheduler.plan})
    ended = await world.run("plan", POOL, "-o", "json")
    told = "\rthe scheduler: another plan is computed\n"
    assert (ended.code, ended.err) == (ExitCode.DONE, told)
    assert len(scheduler.asked) == 3


async def test_a_plan_is_asked_of_the_next_leader(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is killed while it computes, and so answers nothing, not even an error."""
    monkeypatch.setattr("libs.ctl.bus.TERM_PAUSE", 0.05)
    scheduler, asked, kept = Scheduler(POOL), asyncio.Event(), asyncio.Event()

    async def status(leader: str, epoch: int) -> StatusAnswer:
        answer = await scheduler.status(StatusQuery())
        return msgspec.structs.replace(answer, leader=leader, epoch=epoch)

    async def never(_: PlanQuery) -> PlanAnswer:
        asked.set()
        await kept.wait()
        raise AssertionError("a scheduler that was killed answers")

    async with AsyncExitStack() as first:
        await world.answer(
            {QueryVerb.STATUS: lambda _: status("pod-1", 4), QueryVerb.PLAN: never}, until=first
        )
        running = asyncio.create_task(world.run("plan", POOL, "-o", "json"))
        await asked.wait()
    await world.answer(
        {QueryVerb.STATUS: lambda _: status("pod-2", 5), QueryVerb.PLAN: scheduler.plan}
    )
    ended = await running
    assert ended.code == ExitCode.DONE, ended.err
    assert "pod-2 leads now, and is asked for the plan" in ended.err
    assert len(scheduler.asked) == 1


async def test_a_plan_that_nobody_goes_on_with_is_given_up_without_a_subject(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libs.ctl.bus.TERM_PAUSE", 0.02)
    monkeypatch.setattr("libs.ctl.bus.NO_LEADER_SECONDS", 0.1)
    asked, kept = asyncio.Event(), asyncio.Event()

    async def never(_: PlanQuery) -> PlanAnswer:
        asked.set()
        await kept.wait()
        raise AssertionError("a scheduler that was killed answers")

    async with AsyncExitStack() as first:
        await world.answer(
            {QueryVerb.STATUS: Scheduler(POOL).status, QueryVerb.PLAN: never}, until=first
        )
        running = asyncio.create_task(world.run("plan", POOL))
        await asked.wait()
    ended = await running
    assert ended.code == ExitCode.NOT_REACHABLE
    first_line, last_line, _ = ended.err.split("\n")
    assert "does not lead any more: waiting for one" in first_line
    assert "no other has led for 0.1 s; look at its pods" in last_line


async def test_a_query_without_an_answer_names_no_subject(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libs.ctl.bus.SECONDS", dict.fromkeys(QueryVerb, 0.05))
    kept = asyncio.Event()

    async def never(_: PlanQuery) -> PlanAnswer:
        await kept.wait()
        raise AssertionError("nobody waits for it")

    await world.answer({QueryVerb.STATUS: Scheduler(POOL).status, QueryVerb.PLAN: never})
    ended = await world.run("plan", POOL)
    assert ended.code == ExitCode.NOT_REACHABLE
    assert "asking the scheduler for a plan: no answer within 0.05 s; try again" in ended.err


async def test_without_a_leader_the_scheduler_is_said_to_be_away(world: World) -> None:
    ended = await world.run("plan", POOL)
    assert ended.code == ExitCode.NOT_REACHABLE
    assert "no scheduler leads" in ended.err


async def test_nats_refuses_a_person_without_a_token(world: World) -> None:
    ended = await world.run("events", SLUICE_NATS_TOKEN_FILE="")
    assert ended.code == ExitCode.NOT_ALLOWED, ended.err
    assert "no token could be requested for sluice-ctl in sluice" in ended.err


async def test_a_key_of_a_person_is_gone(world: World) -> None:
    ended = await world.run("status", SLUICE_NATS_NKEY_SEED_FILE="/old/seed")
    assert (ended.code, ended.out) == (ExitCode.WRONG_ARGUMENTS, "")
    assert "--nkey-seed-file or SLUICE_NATS_NKEY_SEED_FILE is gone: " in ended.err
    assert "--token-file" in ended.err


async def test_a_token_that_is_not_there_is_not_reachable_for_each_verb(world: World) -> None:
    told = (
        "NATS: cannot read the token file /gone/token: no such file or directory; name one that"
        " is there and that you may read, with --token-file or SLUICE_NATS_TOKEN_FILE\n"
    )
    for verb in ("plan", "events", "audit"):
        ended = await world.run(verb, SLUICE_NATS_TOKEN_FILE="/gone/token")
        assert (ended.code, ended.out) == (ExitCode.NOT_REACHABLE, ""), verb
        assert ended.err.endswith(told), verb
    status = await world.run("status", SLUICE_NATS_TOKEN_FILE="/gone/token", COLUMNS="400")
    assert (status.code, status.err) == (ExitCode.DONE, "")
    assert f"waits: not from the scheduler: {told}" in status.out
    doctor = await world.run("doctor", SLUICE_NATS_TOKEN_FILE="/gone/token", COLUMNS="400")
    assert "cannot read the token file /gone/token: no such file" in doctor.out
    assert "its pods run" not in doctor.out


def step(node: str) -> tuple[StepEvent, str, str]:
    body = StepEvent(pool=POOL, token=1, before="", after="upgrade-required", target=NEW)
    return body, f"{node} starts its upgrade to {NEW}", node


async def test_events_are_read_in_order_and_filtered(world: World) -> None:
    leader = (LeaderEvent(holder="scheduler-1", epoch=1), "scheduler-1 leads\x1b[2J", "")
    await world.publish(leader, step("node-1"), step("node-2"))
    everything = await world.run("events")
    assert everything.code == ExitCode.DONE
    assert [line.split()[3] for line in everything.out.splitlines()] == [
        "scheduler-1",
        "node-1",
        "node-2",
    ]
    assert f"node-2 starts its upgrade to {NEW_VERSION}" in everything.out
    assert "\x1b" not in everything.out
    one = await world.run("events", "--node", "node-1", "-o", "json")
    assert [event["at"] for event in map(msgspec.json.decode, one.out.splitlines())] == [T0 + 1]
    late = await world.run("events", "--since", "2027-01-15T08:00:02+00:00")
    assert late.out.count("\n") == 1


async def add_gpu(world: World, name: str, node: str, index: int, **health: Any) -> None:
    spec = {"node": node, "index": index, "product": "NVIDIA H100", "memory": 81_559}
    await world.apply(
        {
            "apiVersion": "gpu.nvidia.com/v1",
            "kind": "Device",
            "metadata": {"name": name},
            "spec": spec,
            "status": {"uuid": name, "health": health},
        }
    )


async def test_the_gpus_of_a_node_whose_driver_was_unloaded_are_not_healthy(world: World) -> None:
    await add_gpu(world, "gpu-a", "node-5", 0, state="ok")
    await world.add_node("node-5", state="upgrade-failed")
    cause = "driver-start: the driver container restarted 3 times"
    await world.record("node-5", state="upgrade-failed", started=True, cause=cause)
    await world.label("node-5", PRESENT_LABEL, "true")
    ended = await world.run("gpus")
    assert ended.out.startswith("1 GPU on 1 node, 0 healthy, 1 without a driver\n")
    assert "sluice why node-5" in ended.out
    (gpu,) = (await world.run("gpus", "-o", "json")).json
    assert (gpu["health"], gpu["driver_state"]) == ("unknown", "none")


async def test_gpus_are_listed_by_node_and_index_with_what_is_wrong(world: World) -> None:
    await add_gpu(world, "gpu-b", "node-2", 0, state="ok")
    await add_gpu(world, "gpu-c", "node-1", 1, state="failed", message="Xid 79", remedy="reboot")
    await add_gpu(world, "gpu-a", "node-1", 0, state="ok")
    ended = await world.run("gpus")
    assert ended.out.startswith("3 GPUs on 2 nodes, 2 healthy, 1 failed\n")
    assert [line.split()[:2] for line in ended.out.splitlines()[2:3]] == [["node-1", "1"]]
    wide = await world.run("gpus", "-o", "wide")
    assert [line.split()[:2] for line in wide.out.splitlines()[2:5]] == [
        ["node-1", "0"],
        ["node-1", "1"],
        ["node-2", "0"],
    ]
    named = await world.run("gpus", "node-2")
    assert [line.split()[:2] for line in named.out.splitlines()[2:]] == [["node-2", "0"]]
    data = (await world.run("gpus", "-o", "json")).json
    assert [each["uuid"] for each in data] == ["gpu-a", "gpu-c", "gpu-b"]
    assert "node-1 GPU 1 failed: Xid 79 (reboot)" in ended.out
    assert "80 GiB" in ended.out
    await world.add_node("node-3")
    none = await world.run("gpus", "node-3")
    assert (none.code, none.out.count("\n")) == (ExitCode.DONE, 1)
    unknown = await world.run("gpus", "node-9")
    assert unknown.code == ExitCode.NOT_FOUND


async def test_the_version_is_that_of_the_package(world: World) -> None:
    assert (await world.run("version", "-o", "json")).json == {"version": "0.1.0"}


_PROGRAM = """
import signal, sys
from libs.ctl.command import main
# Tests that a shell runs in the background inherit that SIGINT is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""


@pytest.mark.parametrize("output", [(), ("-o", "json")])
async def test_a_reader_that_has_enough_ends_the_command_well(
    world: World, output: tuple[str, ...]
) -> None:
    await world.publish(*[step("node-1")] * 5)
    read, write = os.pipe()
    os.close(read)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM, "events", *output),
        env={**os.environ, **world.environ, "PYTHONPATH": str(Path.cwd())},
        stdout=write,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(write)
    _, errors = await process.communicate()
    assert (process.returncode, errors) == (ExitCode.DONE, b"")


async def _follow_events(world: World, *more: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM),
        *("events", "--follow", "-o", "json", *more),
        env={**os.environ, **world.environ, "PYTHONPATH": str(Path.cwd())},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_who_follows_an_unknown_node_is_told_before_it_waits(world: World) -> None:
    await world.publish(step("node-1"))
    process = await _follow_events(world, "--node", "node-1")
    assert process.stderr is not None
    told = (await process.stderr.readline()).decode()
    assert told.startswith("sluice: there is no Node 'node-1'; ")
    assert told.endswith("; waiting for its events\n")
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline())["node"] == "node-1"
    process.send_signal(signal.SIGINT)
    await process.communicate()


async def test_events_are_followed_until_ctrl_c(world: World) -> None:
    await world.publish(step("node-1"))
    process = await _follow_events(world)
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline())["node"] == "node-1"
    await world.publish(*[step("node-1")] * 2, step("node-2"))
    while json.loads(await process.stdout.readline())["node"] != "node-2":
        pass
    process.send_signal(signal.SIGINT)
    out, errors = await process.communicate()
    assert (process.returncode, out, errors) == (ExitCode.INTERRUPTED, b"", b"")


def test_no_failure_of_nats_names_a_subject() -> None:
    query = subjects.Query(cluster="default", service="scheduler", verb="plan")
    failure = bus_failure(BusUnavailable(f"{query}: no answer within 5 s"))
    assert str(failure) == "NATS: no answer within 5 s"
    assert str(bus_failure(BusUnavailable("no connection"))) == "NATS: no connection"
