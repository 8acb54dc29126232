"""Sign-in by auth callout on the real server: who is admitted, until when, and who may admit."""

import asyncio
import time
from typing import Any

import msgspec
import pytest
from nats.errors import Error as NatsError

from libs.bus.callout import CalloutKeys, new_seeds
from libs.bus.server_config import SignIn, new_nkey, server_config
from libs.contracts import subjects
from libs.contracts.identities import Identity
from libs.testing.nats import NatsServer
from libs.testing.sign_in import SIGN_IN, TokenSignIn
from tests.security.identities import (
    A_DRIVER,
    B_DRIVER,
    CTL,
    DRIVER_CLUSTER,
    SCHEDULER,
    beat,
    event,
    guessed_inbox,
    slot,
    state,
)
from tests.security.world import RawClient, World
from tests.support import eventually


async def connected_as_sign_in(world: World) -> RawClient:
    seed = world.sign_in.own.nkey.seed
    return await RawClient.connect(world.server.url, SIGN_IN, nkeys_seed_str=seed)


async def test_what_the_server_asks_is_read(guarded: World) -> None:
    sign_in = guarded.sign_in
    before = len(sign_in.admitted)
    await guarded.raw_client(A_DRIVER)
    assert sign_in.admitted[before:] == ["default/a.example/driver#pod-0"]
    assert (sign_in.refused, sign_in.unreadable) == ([], [])


async def test_the_reason_of_a_refusal_is_only_in_the_servers_log(guarded: World) -> None:
    with pytest.raises(NatsError, match=r"^nats: 'Authorization Violation'$"):
        await RawClient.connect(guarded.server.url, A_DRIVER, token="a-stolen-token")

    (refused,) = guarded.sign_in.refused
    assert (refused.token, refused.kind, refused.host) == ("a-stolen-token", "nats", "127.0.0.1")
    await eventually(lambda: "the token is unknown" in guarded.server.log)
    assert "a-stolen-token" not in guarded.server.log


async def test_a_session_ends_when_it_expires(guarded: World) -> None:
    sign_in = guarded.sign_in
    sign_in.lifetime = 1
    raw = await guarded.raw_client(A_DRIVER)
    await eventually(lambda: raw.client.is_closed)
    assert "user authentication expired" in str(raw.client.last_error).lower()


async def test_only_the_configured_key_admits(guarded: World) -> None:
    """Another process of sign-in still has an old key, and answers in good faith."""
    sign_in = guarded.sign_in
    right, before = sign_in.keys, len(sign_in.admitted)
    sign_in.keys = CalloutKeys.from_seeds(new_seeds()[0], sign_in.own.seeds[1])
    with pytest.raises(NatsError, match="Authorization Violation"):
        await guarded.raw_client(A_DRIVER)
    assert len(sign_in.admitted) == before + 1
    sign_in.keys = right
    assert (await guarded.raw_client(A_DRIVER)).client.is_connected


NOT_FOR_SIGN_IN = {
    "a slot": slot(B_DRIVER),
    "state": state(B_DRIVER),
    "an event": event(SCHEDULER, "step"),
    "a beat": beat(B_DRIVER),
    "a service's inbox": guessed_inbox(SCHEDULER),
    "the API": subjects.js_api("STREAM", "INFO", "STATE"),
    "a request of the server": subjects.SIGN_IN_REQUESTS,
    "another service of the server": "$SYS.REQ.SERVER.PING.VARZ",
    "a reload": "$SYS.REQ.SERVER.x.RELOAD",
}


async def test_sign_in_takes_part_in_no_plane(guarded: World) -> None:
    before = await guarded.kept()
    raw = await connected_as_sign_in(guarded)
    for subject in NOT_FOR_SIGN_IN.values():
        await raw.send(subject, b"x")
    assert len(raw.violations) == len(NOT_FOR_SIGN_IN)
    messages = await raw.listen(">", subjects.cluster_pattern(subjects.Beat, "default"))
    assert len(raw.violations) == len(NOT_FOR_SIGN_IN) + 2
    await (await guarded.raw_client(B_DRIVER)).send(beat(B_DRIVER), b"alive")
    await guarded.settle()
    assert await guarded.kept() == before
    assert messages == []
    await raw.client.close()


@pytest.mark.parametrize("identity", [A_DRIVER, CTL, SCHEDULER, DRIVER_CLUSTER], ids=str)
async def test_nobody_else_sees_requests_or_answers(guarded: World, identity: Identity) -> None:
    """A request contains the client's token, encrypted; an answer admits whom it names."""
    raw = await guarded.raw_client(identity)
    messages = await raw.listen(subjects.SIGN_IN_REQUESTS, subjects.SIGN_IN_ANSWERS)
    await raw.send(subjects.SIGN_IN_REQUESTS, b"x")
    await raw.send(subjects.SIGN_IN_ANSWERS.replace(">", "x.y"), b"x")
    assert len(raw.violations) == 4
    await guarded.raw_client(B_DRIVER)
    await raw.flush()
    assert messages == []


async def test_an_unlisted_key_is_asked_about(guarded: World) -> None:
    with pytest.raises(NatsError, match="Authorization Violation"):
        await RawClient.connect(guarded.server.url, SCHEDULER, nkeys_seed_str=new_nkey().seed)
    assert [each.token for each in guarded.sign_in.refused] == [""]


async def test_without_an_answer_the_client_is_refused(sign_in: TokenSignIn) -> None:
    settings = msgspec.structs.replace(sign_in.settings(), timeout=1)
    async with NatsServer(config=server_config(settings)) as server:
        began = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        token = sign_in.tokens[A_DRIVER]
        connect = msgspec.json.encode({"auth_token": token, "verbose": False})
        writer.write(b"CONNECT " + connect + b"\r\nPING\r\n")
        lines = (await reader.read()).splitlines()
        assert lines[-1] == b"-ERR 'Authorization Violation'"
        assert time.monotonic() - began > 0.9
        writer.close()
        await writer.wait_closed()


# The configuration, without a server.

KEYS = CalloutKeys.from_seeds(*new_seeds())
OURS = new_nkey()
SETTINGS: dict[str, Any] = {
    "issuer": KEYS.public_signing,
    "xkey": KEYS.public_xkey,
    "keys": (OURS.public,),
    "identities": 1,
}
NO_KEYS = {
    "a seed": OURS.seed,
    "another alphabet": f"{OURS.public[:-1]}_",
    "more than a key": f"{OURS.public}}}",
    "nothing": "",
}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"issuer": KEYS.public_xkey}, "issuer of sign-in: .* give the public key"),
        ({"xkey": KEYS.public_signing}, "xkey of sign-in: .* give the public key"),
        ({"keys": ()}, "the 0 keys of sign-in are none"),
        ({"keys": (OURS.public, OURS.public)}, "the 2 keys of sign-in are none, or some twice"),
        *(
            ({"keys": (text,)}, "a key of sign-in: .* give the public key")
            for text in NO_KEYS.values()
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        SignIn(**(SETTINGS | change))


def test_a_seed_in_the_settings_is_not_printed() -> None:
    seed, _ = new_seeds()
    change: dict[str, Any] = {"issuer": seed}
    with pytest.raises(ValueError, match="issuer") as raised:
        SignIn(**(SETTINGS | change))
    assert seed not in str(raised.value)


def test_every_key_of_sign_in_is_listed() -> None:
    """The server asks about every other user of its configuration too, who then is refused."""
    keys = (OURS.public, new_nkey().public)
    config = server_config(msgspec.structs.replace(SignIn(**SETTINGS), keys=keys))
    (listed,) = [part.split("]")[0].split() for part in config.split("auth_users: [")[1:]]
    assert listed == sorted(keys)
