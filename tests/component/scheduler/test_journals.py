"""The scheduler hands over the journals of a node's agents, page by page."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from libs.audit.agents import AgentJournal
from libs.bus.commands import journal_pages
from libs.contracts import subjects
from libs.contracts.identities import Writer
from libs.contracts.journal import Entry
from libs.contracts.message import encode
from libs.contracts.queries import (
    JournalAnswer,
    JournalPart,
    JournalQuery,
    QueryError,
    QueryErrorCode,
)
from libs.contracts.reports import SILENT_AFTER, Beat
from libs.ctl.collect.audit import AuditSources
from libs.ctl.collect.journals import JournalReader
from tests.component.processes import AGENTS
from tests.component.scheduler.world import World, in_world


async def ask(world: World, query: JournalQuery) -> JournalAnswer:
    answer = await world.ask(query, timeout=40.0)
    assert isinstance(answer, JournalAnswer), answer
    return answer


async def parts_of(world: World, node: str) -> Mapping[str, JournalPart]:
    return {each.component: each for each in (await ask(world, JournalQuery(node=node))).parts}


def written(world: World, node: str) -> dict[str, Sequence[Entry]]:
    return {str(writer): world.journals[node, writer] for writer in AGENTS}


async def refusal_of(world: World, query: JournalQuery) -> QueryErrorCode:
    answer = await world.ask(query, timeout=40.0)
    assert isinstance(answer, QueryError), answer
    return answer.code


@in_world
async def test_the_journals_of_all_agents_are_handed_over_page_by_page(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.complete_first_rollout("a")
    parts = await parts_of(world, "a")
    assert {name: list(part.entries) for name, part in parts.items()} == written(world, "a")
    assert all(part.problem == "" and part.next is None for part in parts.values())
    assert all(part.complete_since == part.entries[0].time for part in parts.values())

    monkeypatch.setattr(journal_pages, "PAGE_BYTES", 1200)
    answer = await ask(world, JournalQuery(node="a"))
    assert all(sum(len(encode(entry)) for entry in part.entries) < 1200 for part in answer.parts)
    assert any(part.next for part in answer.parts)
    sources = AuditSources(None, tuple(await world.bus_events()), logs=[], events_problem="")
    read = list[AgentJournal]()

    def keep(_node: str, found: Sequence[AgentJournal]) -> None:
        read.extend(found)

    monkeypatch.setattr(sources.agents, "judge", keep)
    told: list[tuple[int, int]] = []
    reader = JournalReader(
        lambda query: ask(world, query),
        sources.agents,
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert (await reader.run()).unread == []
    assert {each.component: list(each.entries) for each in read} == written(world, "a")
    assert told == [(1, 1)]

    assert await refusal_of(world, JournalQuery(node="z")) is QueryErrorCode.NOT_FOUND
    unknown = JournalQuery(node="a", after={"kubelet": 0})
    assert await refusal_of(world, unknown) is QueryErrorCode.UNREADABLE


@in_world
async def test_an_agent_that_cannot_answer_is_named_and_hides_no_other(world: World) -> None:
    await world.complete_first_rollout("a")
    bus = world.connect(Writer.DRIVER, node="a")
    machine, uid = world.machines["a"], world.cluster.fleet["a"].node_uid
    beat = Beat(node="a", node_uid=uid, boot_id=machine.boot_id, component="driver", release="1.0")
    subject = subjects.Beat(cluster="default", node="a", component=Writer.DRIVER)
    await bus.publish(str(subject), encode(beat))
    await world.sleep(1)
    bus.kill()
    await world.kill_agents("a", Writer.PLUGIN)
    asked = (world.ask(JournalQuery(node="a"), timeout=40.0) for _ in range(3))
    *answers, refused = sorted(
        await asyncio.gather(*asked), key=lambda answer: isinstance(answer, QueryError)
    )
    assert refused.code is QueryErrorCode.NOT_READY, "two nodes are asked at a time"
    for answer in answers:
        parts = {each.component: each for each in answer.parts}
        assert parts[Writer.PLUGIN].problem == "the agent did not answer within 10 s"
        assert parts[Writer.DRIVER].problem.startswith("the agent is of 1.0, which hands over no")
        assert parts[Writer.VALIDATOR].entries
    await world.sleep(SILENT_AFTER + 10)
    parts = await parts_of(world, "a")
    assert parts[Writer.PLUGIN].problem.startswith("the agent is silent, for ")
    assert {name for name, part in parts.items() if part.entries} == set(AGENTS) - {Writer.PLUGIN}
