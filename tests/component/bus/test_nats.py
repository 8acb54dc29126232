"""The workarounds for nats-py's defects, on a real server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from libs.bus.credentials import Credentials
from libs.bus.nats import base_connection, consumer
from libs.bus.nats.base_connection import DRAIN_SECONDS
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.nats.client import PatchedClient
from libs.bus.port import BusMisconfigured, BusUnavailable, LastPerSubject, SubjectForbidden
from libs.bus.server_config import new_nkey
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import COMMANDS
from libs.testing.nats import NatsServer
from libs.testing.proxy import Proxy
from libs.testing.simulation import make_env
from tests.component.bus.recorders import RecordingFollower, RecordingHandler
from tests.support import eventually

SCHEDULER = Identity(writer=Writer.SCHEDULER)
SLOT = str(subjects.Command(cluster="default", node="a", component="driver"))

Connect = Callable[..., Awaitable[NatsBus]]


@pytest.fixture
async def server() -> AsyncIterator[NatsServer]:
    async with NatsServer() as running:
        yield running


@pytest.fixture
async def connected() -> AsyncIterator[Connect]:
    """Connections that are closed at the end of the test."""
    async with AsyncExitStack() as stack:

        async def make(url: str, **options: object) -> NatsBus:
            arguments = {
                "url": url,
                "identity": SCHEDULER,
                "env": make_env(),
                **options,
            }
            return await stack.enter_async_context(connect(**arguments))  # pyright: ignore[reportArgumentType]

        yield make


def ignore(_subject: str, _data: bytes, _reply: str) -> None:
    pass


def nkey(folder: Path) -> tuple[Credentials, str]:
    """The seed of a user in a file, and its public key."""
    key = new_nkey()
    (folder / "seed").write_text(key.seed)
    return Credentials(nkey_seed_file=str(folder / "seed")), key.public


def users(*rules: str) -> str:
    return "authorization { users: [" + ", ".join(rules) + "] }"


async def test_an_unreachable_server_raises_one_clear_line(connected: Connect) -> None:
    async with NatsServer() as stopped:
        url = stopped.url
    with pytest.raises(BusUnavailable) as caught:
        await connected(url, wait=0.5)
    text = str(caught.value)
    assert url in text
    assert "default/-/scheduler" in text
    assert "check the address" in text
    assert "\n" not in text


async def test_refused_credentials_are_not_retried(connected: Connect, tmp_path: Path) -> None:
    unknown, _ = nkey(tmp_path)
    async with NatsServer(config=users(f"{{nkey: {new_nkey().public}}}")) as server:
        with pytest.raises(SubjectForbidden, match="refused default/-/scheduler") as caught:
            await connected(server.url, credentials=unknown, wait=60.0)
        assert (tmp_path / "seed").read_text() not in str(caught.value)


async def test_an_unreadable_seed_file_is_named(connected: Connect, tmp_path: Path) -> None:
    missing = Credentials(nkey_seed_file=str(tmp_path / "seed"))
    with pytest.raises(BusMisconfigured, match="cannot read the nkey seed file"):
        await connected("nats://127.0.0.1:1", credentials=missing)


async def test_a_silent_server_fails_the_connect(connected: Connect) -> None:
    async with NatsServer() as server, Proxy("127.0.0.1", server.port) as proxy:
        proxy.drop()
        with pytest.raises(BusUnavailable, match="no connection to NATS"):
            await connected(proxy.url, wait=0.5)


async def test_permission_violations_raise(connected: Connect, tmp_path: Path) -> None:
    credentials, public = nkey(tmp_path)
    inbox = subjects.inbox(SCHEDULER) + ".>"
    rule = f'{{nkey: {public}, permissions: {{publish: ["x"], subscribe: ["{inbox}"]}}}}'
    async with NatsServer(config=users(rule)) as server:
        bus = await connected(server.url, credentials=credentials)
        with pytest.raises(SubjectForbidden, match="may not publish"):
            await bus.store(COMMANDS, SLOT, b"{}")
        with pytest.raises(SubjectForbidden, match="may not publish"):
            await bus.last(COMMANDS, SLOT)
        with pytest.raises(SubjectForbidden, match="may not subscribe"):
            await bus.subscribe(subjects.plane_pattern(subjects.Event), ignore)


async def test_pending_data_is_not_sent_after_a_reconnect(
    server: NatsServer, connected: Connect
) -> None:
    async with Proxy("127.0.0.1", server.port) as proxy:
        watcher = await connected(server.url)
        writer = await connected(proxy.url)
        await watcher.ensure(COMMANDS)
        handler = RecordingHandler()
        await watcher.subscribe(subjects.plane_pattern(subjects.Beat), handler)
        beat = str(subjects.Beat(cluster="default", node="a", component="driver"))
        await writer.publish(beat, b"before")
        await eventually(lambda: handler.received == [(beat, b"before")])

        proxy.pause()
        late = asyncio.create_task(writer.store(COMMANDS, SLOT, b"late"))
        await asyncio.sleep(0)
        proxy.refuse()
        proxy.cut()
        with pytest.raises(BusUnavailable):
            await late
        await eventually(lambda: not writer.link.is_up)
        for _ in range(3):
            with pytest.raises(BusUnavailable):
                await writer.publish(beat, b"while away")
        proxy.restore()
        await eventually(lambda: writer.link.is_up)
        await writer.publish(beat, b"after")
        await eventually(lambda: handler.received[-1] == (beat, b"after"))
        assert [data for _, data in handler.received] == [b"before", b"after"]
        assert await watcher.last(COMMANDS, SLOT) is None


async def test_closing_while_the_server_is_gone_is_quick_and_quiet(server: NatsServer) -> None:
    async with connect(url=server.url, identity=SCHEDULER, env=make_env()) as bus:
        await server.kill()
        await eventually(lambda: not bus.link.is_up)
    assert not bus.link.is_up


async def test_closing_during_a_reconnect_leaves_no_task(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client waits by `wait_for`, which loses a cancellation that comes with the answer."""
    original = PatchedClient._process_connect_init  # pyright: ignore[reportPrivateUsage]
    reached, lost = asyncio.Event(), asyncio.Event()

    async def wait_in_handshake(client: PatchedClient) -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost.set()
        await original(client)

    async with connect(url=server.url, identity=SCHEDULER, env=make_env()) as bus:
        monkeypatch.setattr(PatchedClient, "_process_connect_init", wait_in_handshake)
        await server.restart()
        await eventually(reached.is_set)
        assert not bus.link.is_up
    assert lost.is_set()


async def test_a_lost_stream_is_recreated_by_the_process_that_ensured_it(
    server: NatsServer, connected: Connect
) -> None:
    bus = await connected(server.url)
    await bus.ensure(COMMANDS)
    first = await bus.store(COMMANDS, SLOT, b"{}")
    assert await bus.store(COMMANDS, SLOT, b"{}") == first + 1
    await server.lose_stream("COMMANDS")
    await eventually(lambda: bus.link.is_up)
    assert await bus.store(COMMANDS, SLOT, b"{}", expect=0) > first + 1


async def test_a_handler_that_raises_ends_the_guard_with_its_error(
    server: NatsServer, connected: Connect
) -> None:
    bus = await connected(server.url)

    def defect(_subject: str, _data: bytes, _reply: str) -> None:
        raise ValueError("a defect")

    beat = str(subjects.Beat(cluster="default", node="a", component="driver"))
    await bus.subscribe(beat, defect)
    await bus.publish(beat, b"")
    with pytest.raises(ValueError, match="a defect"):
        await asyncio.wait_for(bus.guard(), 30)


async def test_a_bus_that_cannot_read_a_stream_is_unready_until_it_can(
    server: NatsServer, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[..., Awaitable[None]] = vars(PatchedClient)["_process_msg"]
    is_defective = True

    async def end_reading(client: PatchedClient, sid: int, subject: bytes, *rest: bytes) -> None:
        if is_defective and subject == SLOT.encode():
            raise asyncio.CancelledError
        await original(client, sid, subject, *rest)

    monkeypatch.setattr(base_connection, "WATCH_SECONDS", 0.3)
    monkeypatch.setattr(consumer, "BEHIND_SECONDS", 0.3)
    bus = await connected(server.url)
    guarding = asyncio.create_task(bus.guard())
    await bus.ensure(COMMANDS)
    await bus.store(COMMANDS, SLOT, b"{}")
    monkeypatch.setattr(PatchedClient, "_process_msg", end_reading)
    reader = RecordingFollower()
    reading = await bus.follow(COMMANDS, SLOT, reader, start=LastPerSubject())
    reasons: set[str] = set()

    def has_both_reasons() -> bool:
        reasons.add(bus.unready_reason() or "")
        return any("nothing is read" in reason for reason in reasons) and any(
            "stream COMMANDS has not been read for" in reason for reason in reasons
        )

    await eventually(has_both_reasons)
    assert "caught up" not in reader.calls
    is_defective = False
    await eventually(lambda: bus.unready_reason() is None and reader.calls[-1] == "caught up")
    await reading.close()
    guarding.cancel()
    await asyncio.gather(guarding, return_exceptions=True)


async def test_a_cancelled_subscribe_leaves_no_subscription(
    server: NatsServer, connected: Connect
) -> None:
    handler = RecordingHandler()
    beat = str(subjects.Beat(cluster="default", node="a", component="driver"))
    async with Proxy("127.0.0.1", server.port) as proxy:
        bus = await connected(proxy.url)
        proxy.pause(way="down")
        subscribing = asyncio.create_task(bus.subscribe(beat, handler))
        await asyncio.sleep(0)
        subscribing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await subscribing
        proxy.resume(way="down")
        kept = await bus.subscribe(beat, handler)
        await bus.publish(beat, b"once")
        await eventually(lambda: handler.received == [(beat, b"once")])
        await kept.close()
        assert handler.received == [(beat, b"once")]


async def test_revoked_permissions_end_the_guard(connected: Connect, tmp_path: Path) -> None:
    """Otherwise a connected monitor would miss all heartbeats and report every node as silent."""
    credentials, public = nkey(tmp_path)
    beats = subjects.plane_pattern(subjects.Beat)
    inbox = f"{subjects.inbox(SCHEDULER)}.>"

    def rules(*patterns: str) -> str:
        allowed = ", ".join(f'"{pattern}"' for pattern in patterns)
        return users(f"{{nkey: {public}, permissions: {{subscribe: [{allowed}]}}}}")

    async with NatsServer(config=rules(beats, inbox)) as server:
        bus = await connected(server.url, credentials=credentials)
        await bus.subscribe(beats, ignore)
        await server.reload(rules(inbox))
        with pytest.raises(SubjectForbidden, match="may no longer subscribe"):
            await asyncio.wait_for(bus.guard(), 30)


@pytest.mark.parametrize("text", ["SUAGARBAGE", ""], ids=["garbage seed", "empty seed"])
async def test_malformed_credentials_are_reported(
    connected: Connect, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "secret"
    file.write_text(text)
    with pytest.raises(BusMisconfigured, match="does not contain an nkey seed") as caught:
        await connected("nats://127.0.0.1:1", credentials=Credentials(nkey_seed_file=str(file)))
    assert not text or text not in str(caught.value)


async def test_a_token_missing_during_a_reconnect_is_read_again(
    connected: Connect, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("abc")
    async with NatsServer(config="authorization { token: abc }") as server:
        bus = await connected(server.url, credentials=Credentials(token_file=str(token)))
        token.unlink()
        await server.restart()
        await eventually(lambda: not bus.link.is_up)
        token.write_text("abc")
        await eventually(lambda: bus.link.is_up)


async def test_an_answer_without_acknowledgement_raises(
    server: NatsServer, connected: Connect
) -> None:
    bus, other = await connected(server.url), await connected(server.url)
    answers: list[asyncio.Task[None]] = []

    def answer(_subject: str, _data: bytes, reply: str) -> None:
        answers.append(asyncio.create_task(other.publish(reply, b"{}")))

    await other.subscribe(SLOT, answer)
    with pytest.raises(BusUnavailable, match="does not acknowledge it"):
        await bus.store(COMMANDS, SLOT, b"{}")
    await asyncio.gather(*answers)


async def test_an_unresponsive_server_delays_the_close_only_once(
    server: NatsServer, connected: Connect
) -> None:
    async with Proxy("127.0.0.1", server.port) as proxy:
        bus = await connected(proxy.url)
        subscribed = [
            await bus.subscribe(
                str(subjects.Beat(cluster="default", node=node, component="driver")), ignore
            )
            for node in ("a", "b", "c")
        ]
        proxy.pause()
        began = asyncio.get_running_loop().time()
        for each in subscribed:
            await each.close()
        assert asyncio.get_running_loop().time() - began < 3 * DRAIN_SECONDS
        proxy.resume()
