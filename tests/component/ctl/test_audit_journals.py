"""`sluice audit` reads the journals of agents through NATS and the scheduler, and judges them.

The journals and events are those of a simulated fleet; agents with these journals on disk, a real
nats-server, the scheduler's collector and the command bring them to the audit.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from libs.bus.agent import Agent
from libs.bus.heartbeats import HeartbeatMonitor
from libs.bus.journal import FileJournal
from libs.bus.reports import ReportCache
from libs.bus.slot_cache import SlotCache
from libs.contracts.events import Event
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Entry
from libs.contracts.queries import QueryVerb
from libs.ctl.failures import ExitCode
from libs.rollout.views.node import NodeView
from libs.testing.simulation import make_env
from services.scheduler import journals
from services.scheduler.journals import JournalCollector
from tests.component.ctl.world import Ended, World, make_world
from tests.component.processes import AGENTS
from tests.component.scheduler.world import NEW, play
from tests.component.scheduler.world import World as Fleet
from tests.support import eventually

pytestmark = pytest.mark.together("journals")


class Run(msgspec.Struct):
    """What a rollout and an upgrade of two nodes left behind."""

    entries: dict[Identity, Sequence[Entry]] = {}
    events: Sequence[Event] = ()


@pytest.fixture(scope="module")
def upgrade() -> Run:
    run = Run()

    async def story(fleet: Fleet) -> None:
        _, target = await fleet.complete_first_rollout("a", "b")
        await fleet.apply_policy(NEW)
        await fleet.wait_until_done("a", "b", before=target)
        run.events = await fleet.bus_events()
        run.entries = {
            Identity(writer=writer, node=node): tuple(fleet.journals[node, writer])
            for node in ("a", "b")
            for writer in AGENTS
        }

    play(story)
    return run


def nodes_of(run: Run) -> Mapping[str, NodeView]:
    last = {identity.node: entries[-1] for identity, entries in run.entries.items()}
    return {
        name: NodeView(name=name, uid=each.node_uid, revision="1", boot_id=each.boot_id)
        for name, each in last.items()
    }


async def make_agent(world: World, identity: Identity, run: Run) -> Agent:
    """Return an agent with its journal on the disk, whose events are stored."""
    entries, bus = run.entries[identity], await world.connect(identity)
    own = (identity.node, identity.writer)
    await world.store(*(each for each in run.events if (each.node, each.writer) == own), bus=bus)
    journal = FileJournal(
        world.folder / identity.node / identity.writer / "journal", run=asyncio.to_thread
    )
    await journal.open()
    for entry in entries:
        await journal.append(entry)
    return Agent(
        bus=bus,
        env=make_env(),
        journal=journal,
        node_uid=entries[-1].node_uid,
        boot_id=entries[-1].boot_id,
        handlers={},
        checks={},
    )


@asynccontextmanager
async def served(folder: Path, run: Run, *, away: Collection[Identity]) -> AsyncGenerator[World]:
    """Serve the journals and the events of a run; some agents go away after their last report."""
    async with make_world(folder) as world, AsyncExitStack() as stack:
        await world.start_nats(*run.entries)
        env, cluster = make_env(), "default"
        reports = ReportCache(bus=world.bus, clock=env.clock, cluster=cluster)
        heartbeats = HeartbeatMonitor(bus=world.bus, clock=env.clock, cluster=cluster)
        slots = SlotCache()
        for each in (reports, heartbeats, slots.follow(world.bus)):
            await stack.enter_async_context(each)
        collector = JournalCollector(
            bus=world.bus,
            env=env,
            reports=reports,
            heartbeats=heartbeats,
            slot_cache=slots,
            find_node=nodes_of(run).get,
        )
        await stack.enter_async_context(collector.follow())
        await world.answer({QueryVerb.JOURNAL: collector.answer})
        await world.store(*(each for each in run.events if each.writer == Writer.SCHEDULER))
        tasks: dict[Identity, list[asyncio.Task[None]]] = {}
        for identity in run.entries:
            agent = await make_agent(world, identity, run)
            parts = (agent.reporter.run(), agent.commands.run())
            tasks[identity] = [asyncio.create_task(each) for each in parts]
        await eventually(lambda: all(_has_reported(reports, each) for each in tasks))
        try:
            await _end([task for each in away for task in tasks[each]])
            yield world
        finally:
            await _end([task for each in tasks.values() for task in each])


def _has_reported(reports: ReportCache, agent: Identity) -> bool:
    return reports.get(agent.node, agent.writer, "result") is not None


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def verdicts(ended: Ended, code: ExitCode) -> dict[str, str]:
    """Return by invariant the first violation, or what is missing, or nothing."""
    assert (ended.code, ended.err) == (code, "")
    return {
        each["name"]: " ".join([*each["first"][:1], each["not_judged"]]).strip()
        for each in msgspec.json.decode(ended.out)["invariants"]
        if each["judged"]
    }


async def test_journals_of_a_good_run_are_judged(upgrade: Run, tmp_path: Path) -> None:
    async with served(tmp_path, upgrade, away=()) as world:
        found = verdicts(await world.run("audit", "-o", "json"), ExitCode.DONE)
        assert {"I5", "I11"} <= found.keys()
        assert (found["I5"], found["I11"]) == ("", "")
        told = " ".join((await world.run("audit")).out.split())
    count = sum(map(len, upgrade.entries.values()))
    journals_read = f"{count} entries in {len(upgrade.entries)} journals of 2 nodes"
    assert f"{journals_read}: from their agents" in told


async def test_a_fault_in_a_journal_is_found_and_an_agent_that_is_away_is_named(
    upgrade: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel had answered that the driver is in use, and the agent went on."""
    monkeypatch.setattr(journals, "SECONDS", 1.0)
    driver, away = (
        Identity(writer=Writer.DRIVER, node="a"),
        Identity(writer=Writer.PLUGIN, node="b"),
    )
    planted = [
        replace(entry, detail=entry.detail.replace("unload: ok", "unload: busy"))
        for entry in upgrade.entries[driver]
    ]
    assert planted != list(upgrade.entries[driver])
    run = replace(upgrade, entries={**upgrade.entries, driver: planted})
    async with served(tmp_path, run, away=[away]) as world:
        ended = await world.run("audit", "-o", "json")
        told = " ".join((await world.run("audit")).out.split())
    found = verdicts(ended, ExitCode.FAULT_FOUND)
    assert found["I5"].startswith("the driver agent of a, at swap 2.")
    assert found["I5"].endswith("missing or cut journals")
    assert found["I11"] == "missing or cut journals"
    unread = msgspec.json.decode(ended.out)["unread_journals"]
    assert unread == ["b: plugin: the agent did not answer within 1 s"]
    assert unread[0] in told
