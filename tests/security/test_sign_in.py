"""Sign-in by auth callout on the real server: who is admitted, until when, and who may admit."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from nats.errors import Error as NatsError

from libs.bus.callout import CalloutKeys, new_seeds
from libs.bus.permissions import permissions
from libs.bus.server_config import SignIn, User, new_nkey, server_config
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.testing.nats import NatsServer
from tests.callout import SIGN_IN, TokenSignIn
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
from tests.security.world import RawClient, TokenCredentials, World
from tests.support import eventually


def sign_in_of(world: World) -> TokenSignIn:
    assert isinstance(world.credentials, TokenCredentials)
    return world.credentials.sign_in


async def connected_as_sign_in(world: World) -> RawClient:
    seed = sign_in_of(world).nkey.seed
    return await RawClient.connect(world.server.url, SIGN_IN, nkeys_seed_str=seed)


@asynccontextmanager
async def serving(sign_in: TokenSignIn, config: str) -> AsyncGenerator[NatsServer]:
    async with NatsServer(config=config) as server, sign_in.run(server.url):
        yield server


async def test_what_the_server_asks_is_read(with_tokens: World) -> None:
    sign_in = sign_in_of(with_tokens)
    before = len(sign_in.admitted)
    await with_tokens.raw_client(A_DRIVER)
    assert sign_in.admitted[before:] == ["default/a.example/driver#pod-0"]
    assert (sign_in.refused, sign_in.unreadable) == ([], [])


async def test_the_reason_of_a_refusal_is_only_in_the_servers_log(with_tokens: World) -> None:
    with pytest.raises(NatsError, match=r"^nats: 'Authorization Violation'$"):
        await RawClient.connect(with_tokens.server.url, A_DRIVER, token="a-stolen-token")

    (refused,) = sign_in_of(with_tokens).refused
    assert (refused.token, refused.kind, refused.host) == ("a-stolen-token", "nats", "127.0.0.1")
    await eventually(lambda: "the token is unknown" in with_tokens.server.log)
    assert "a-stolen-token" not in with_tokens.server.log


async def test_a_session_ends_when_it_expires(with_tokens: World) -> None:
    sign_in = sign_in_of(with_tokens)
    sign_in.lifetime = 1
    raw = await with_tokens.raw_client(A_DRIVER)
    await eventually(lambda: raw.client.is_closed)
    assert "user authentication expired" in str(raw.client.last_error).lower()


async def test_only_the_configured_key_admits(with_tokens: World) -> None:
    """Another process of sign-in still has an old key, and answers in good faith."""
    sign_in = sign_in_of(with_tokens)
    right, before = sign_in.keys, len(sign_in.admitted)
    sign_in.keys = CalloutKeys.from_seeds(new_seeds()[0], sign_in.seeds[1])
    with pytest.raises(NatsError, match="Authorization Violation"):
        await with_tokens.raw_client(A_DRIVER)
    assert len(sign_in.admitted) == before + 1
    sign_in.keys = right
    assert (await with_tokens.raw_client(A_DRIVER)).client.is_connected


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


async def test_sign_in_takes_part_in_no_plane(with_tokens: World) -> None:
    before = await with_tokens.kept()
    raw = await connected_as_sign_in(with_tokens)
    for subject in NOT_FOR_SIGN_IN.values():
        await raw.send(subject, b"x")
    assert len(raw.violations) == len(NOT_FOR_SIGN_IN)
    messages = await raw.listen(">", subjects.cluster_pattern(subjects.Beat, "default"))
    assert len(raw.violations) == len(NOT_FOR_SIGN_IN) + 2
    await (await with_tokens.raw_client(B_DRIVER)).send(beat(B_DRIVER), b"alive")
    await with_tokens.settle()
    assert await with_tokens.kept() == before
    assert messages == []
    await raw.client.close()


@pytest.mark.parametrize("identity", [A_DRIVER, CTL, SCHEDULER, DRIVER_CLUSTER], ids=str)
async def test_nobody_else_sees_requests_or_answers(with_tokens: World, identity: Identity) -> None:
    """A request contains the client's token, encrypted; an answer admits whom it names."""
    raw = await with_tokens.raw_client(identity)
    messages = await raw.listen(subjects.SIGN_IN_REQUESTS, subjects.SIGN_IN_ANSWERS)
    await raw.send(subjects.SIGN_IN_REQUESTS, b"x")
    await raw.send(subjects.SIGN_IN_ANSWERS.replace(">", "x.y"), b"x")
    assert len(raw.violations) == 4
    await with_tokens.raw_client(B_DRIVER)
    await raw.flush()
    assert messages == []


async def test_static_users_are_not_asked_about() -> None:
    sign_in, key = TokenSignIn([A_DRIVER]), new_nkey()
    config = server_config([User(identity=CTL, public_key=key.public)], sign_in=sign_in.settings())
    async with serving(sign_in, config) as server:
        static = await RawClient.connect(server.url, CTL, nkeys_seed_str=key.seed)
        admitted = await RawClient.connect(server.url, A_DRIVER, token=sign_in.tokens[A_DRIVER])
        await static.listen(*permissions(CTL).subscribe)
        await static.send(beat(A_DRIVER))
        await admitted.send(beat(A_DRIVER))
        assert (len(static.violations), len(admitted.violations)) == (1, 0)
        assert (len(sign_in.refused), len(sign_in.admitted)) == (0, 1)
        for raw in (static, admitted):
            await raw.client.close()


async def test_an_unlisted_key_is_asked_about(with_tokens: World) -> None:
    with pytest.raises(NatsError, match="Authorization Violation"):
        await RawClient.connect(with_tokens.server.url, SCHEDULER, nkeys_seed_str=new_nkey().seed)
    assert [each.token for each in sign_in_of(with_tokens).refused] == [""]


async def test_without_an_answer_the_client_is_refused() -> None:
    sign_in = TokenSignIn([A_DRIVER])
    settings = msgspec.structs.replace(sign_in.settings(), timeout=1)
    async with NatsServer(config=server_config([], sign_in=settings)) as server:
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
OURS = User(identity=SIGN_IN, public_key=new_nkey().public)
SETTINGS: dict[str, Any] = {
    "issuer": KEYS.public_signing,
    "xkey": KEYS.public_xkey,
    "users": (OURS,),
    "identities": 1,
}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"issuer": KEYS.public_xkey}, "issuer of sign-in: .* give the public key"),
        ({"xkey": KEYS.public_signing}, "xkey of sign-in: .* give the public key"),
        ({"users": ()}, "the users of sign-in are missing"),
        (
            {"users": (OURS, User(identity=CTL, public_key=OURS.public_key))},
            "the users of sign-in are default/-/ctl",
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


def test_sign_in_is_no_static_user() -> None:
    with pytest.raises(ValueError, match="sign-in is among the users"):
        server_config([User(identity=Identity(writer=Writer.SIGN_IN), public_key=OURS.public_key)])


def test_every_static_user_is_listed() -> None:
    """The server asks about every other user of its configuration too, who then is refused."""
    static = User(identity=CTL, public_key=new_nkey().public)
    config = server_config([static], sign_in=SignIn(**SETTINGS))
    (listed,) = [part.split("]")[0].split() for part in config.split("auth_users: [")[1:]]
    assert listed == sorted([static.public_key, OURS.public_key])
