"""The exact extent of the risks that THREAT_MODEL.md accepts."""

import msgspec
import pytest

from libs.contracts import subjects
from libs.contracts.identities import Identity
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.reports import Beat
from libs.contracts.subjects import COMMANDS, EVENTS, STATE
from tests.security.identities import (
    A_DRIVER,
    B_DRIVER,
    CTL,
    ELSEWHERE,
    SCHEDULER,
    beat,
    event,
    guessed_inbox,
    notification,
    slot,
    state,
)
from tests.security.world import World, consumer


async def test_a_node_can_notify_another_to_read_its_slot(guarded: World) -> None:
    before = await guarded.kept(but=(state(A_DRIVER),))
    attacker = await guarded.raw_client(A_DRIVER)

    await attacker.send(state(A_DRIVER), b"mine", reply=notification(slot(B_DRIVER)))

    assert await guarded.kept(but=(state(A_DRIVER),)) == before
    assert [(each.by, each.subject) for each in guarded.deliveries] == [
        (B_DRIVER, notification(slot(B_DRIVER)))
    ]


async def test_an_event_reader_can_notify_with_any_content(guarded: World) -> None:
    await (await guarded.raw_client(A_DRIVER)).ask(event(A_DRIVER), b"of the attacker's choice")
    before = await guarded.kept()
    attacker = await guarded.raw_client(CTL)
    pattern = subjects.cluster_pattern(subjects.Event, "default")
    create = subjects.js_api("CONSUMER", "CREATE", EVENTS.name, "evil", pattern)
    config = {"filter_subject": pattern, "deliver_subject": notification(slot(B_DRIVER))}

    await attacker.ask(create, consumer(EVENTS.name, "evil", **config))

    assert await guarded.kept() == before
    assert {each.by for each in guarded.deliveries} == {B_DRIVER}
    assert b"of the attacker's choice" in {each.data for each in guarded.deliveries}


@pytest.mark.parametrize(
    ("attacker", "subject", "victim"),
    [
        pytest.param(
            A_DRIVER,
            subjects.direct_get(COMMANDS.name, slot(A_DRIVER)),
            B_DRIVER,
            id="among nodes",
        ),
        pytest.param(
            CTL, subjects.js_api("STREAM", "INFO", EVENTS.name), SCHEDULER, id="among services"
        ),
    ],
)
async def test_a_known_inbox_can_be_sent_messages(
    guarded: World, attacker: Identity, subject: str, victim: Identity
) -> None:
    raw = await guarded.raw_client(attacker)

    await raw.send(subject, reply=guessed_inbox(victim))

    await guarded.settle()
    assert [(each.by, each.subject) for each in guarded.deliveries] == [
        (victim, guessed_inbox(victim))
    ]


async def test_services_and_people_can_make_the_server_publish_on_the_beat_plane(
    guarded: World,
) -> None:
    attacker = await guarded.raw_client(CTL)

    await attacker.send(subjects.js_api("STREAM", "INFO", EVENTS.name), reply=beat(B_DRIVER))

    await guarded.settle()
    assert [each.subject for each in guarded.deliveries] == [beat(B_DRIVER)]
    with pytest.raises(MalformedMessage):
        decode(Beat, guarded.deliveries[0].data)


async def test_a_known_future_message_id_can_be_used_to_suppress_it(guarded: World) -> None:
    headers = {"Nats-Msg-Id": "random"}
    await (await guarded.raw_client(A_DRIVER)).ask(state(A_DRIVER), b"mine", headers=headers)
    victim = await guarded.raw_client(B_DRIVER)

    answer = await victim.ask(state(B_DRIVER), b"newer facts", headers=headers)

    assert msgspec.json.decode(answer.data)["duplicate"] is True
    stored = await guarded.scheduler.last(STATE, state(B_DRIVER))
    assert stored is not None
    assert stored.data == b"my facts"


async def test_a_scheduler_can_purge_another_clusters_slots(guarded: World) -> None:
    attacker = await guarded.raw_client(ELSEWHERE)
    purge = subjects.js_api("STREAM", "PURGE", COMMANDS.name)

    await attacker.ask(purge, msgspec.json.encode({"filter": slot(B_DRIVER)}))

    assert await guarded.scheduler.last(COMMANDS, slot(B_DRIVER)) is None
