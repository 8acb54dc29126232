"""Checks for the journal are answered with a page each, or with the reason for none."""

import msgspec
import pytest
from msgspec.structs import replace

from libs.bus.commands.journal_pages import PAGE_BYTES, fill_page
from libs.bus.server_config import HEADERS
from libs.contracts import subjects
from libs.contracts.commands import Check, HoldersCheck, JournalCheck
from libs.contracts.identities import COMPONENTS, Writer
from libs.contracts.journal import JournalPage
from libs.contracts.message import decode, encode
from libs.testing.bus.transport import TraceRecord
from tests.unit.bus.command_world import BOOT, NODE, UID, World, command, in_world

SLOT = subjects.Check(cluster="default", node=NODE, component=Writer.DRIVER, asker=subjects.AUDIT)


def check(world: World, name: str = "id-1", **body: int) -> Check:
    return Check.of(
        JournalCheck(**body), id=name, node=NODE, node_uid=UID, boot_id=BOOT, now=world.clock.now()
    )


def pages_of(world: World) -> list[JournalPage]:
    """Return a list to which each published page is added."""
    pages = list[JournalPage]()

    def observe(record: TraceRecord) -> None:
        if record.action == "publish" and ".journal." in record.subject:
            pages.append(decode(JournalPage, record.data))

    world.server.add_tracer(observe)
    return pages


@in_world
async def test_a_check_is_answered_with_the_journal(world: World) -> None:
    pages = pages_of(world)
    world.agent()
    await world.execute(command(1))
    first = check(world)
    await world.put(first, slot=SLOT)
    await world.until(lambda: len(pages) == 1)
    await world.put(first, slot=SLOT)
    await world.put(check(world, "id-2", after=1), slot=SLOT)
    await world.until(lambda: len(pages) == 2)
    await world.clock.sleep(300.0)
    whole, rest = pages
    assert (whole.check, list(whole.entries), whole.next) == ("id-1", world.entries, None)
    assert (rest.check, list(rest.entries)) == ("id-2", world.entries[1:])
    assert whole.complete_since == world.entries[0].time
    assert [body for body in world.bodies() if type(body).__name__ == "Refusal"] == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"node_uid": "uid-9"}, "uid-9"),
        ({"boot_id": "boot-9"}, "boot-9"),
        ({"expires": 0.0, "valid_seconds": 0.0}, "expired before it was read"),
        ({"kind": "holders", "body": msgspec.Raw(encode(HoldersCheck()))}, "does not answer it"),
        ({"body": msgspec.Raw(b"7")}, "JournalCheck"),
    ],
)
@in_world
async def test_a_check_that_is_refused_says_why(
    world: World, wrong: dict[str, object], words: str
) -> None:
    pages = pages_of(world)
    world.agent()
    await world.clock.sleep(5.0)
    await world.put(replace(check(world), **wrong), slot=SLOT)
    await world.until(lambda: len(pages) == 1)
    assert words in pages[0].problem
    assert pages[0].entries == ()
    assert world.bodies() == []


def test_pages_of_all_components_of_a_node_fit_into_one_answer() -> None:
    assert subjects.Journal.max_message > PAGE_BYTES
    most = max(stream.max_message for stream in subjects.STREAMS) + HEADERS
    assert len(COMPONENTS) * subjects.Journal.max_message < most, "what a server accepts"


@in_world
async def test_a_page_is_full_and_a_large_entry_is_shortened(world: World) -> None:
    world.agent()
    await world.execute(command(1))
    entry = replace(world.entries[0], detail="x" * 300)
    page = fill_page([entry] * 1000)
    size = sum(len(encode(each)) + 1 for each in page)
    assert PAGE_BYTES - 1000 < size <= PAGE_BYTES
    large = replace(entry, detail="x" * 2 * PAGE_BYTES)
    (shortened, *_) = fill_page([large, entry])
    assert len(encode(shortened)) < PAGE_BYTES
    assert fill_page([]) == ()
    rest = len(encode(replace(entry, detail="x" * PAGE_BYTES))) + 1 - PAGE_BYTES
    fitting = replace(entry, detail="x" * (PAGE_BYTES - rest))
    assert fill_page([fitting, entry]) == (fitting,)
