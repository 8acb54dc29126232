"""The configuration of the server, and the connections that it admits."""

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from libs.bus.credentials import Credentials
from libs.bus.nats.bus import connect
from libs.bus.nats.jetstream import configuration
from libs.bus.port import SubjectForbidden
from libs.bus.server_config import ServerCluster, Tls, new_nkey, server_config
from libs.contracts import subjects
from libs.contracts.senders import event_subjects, report_subjects
from libs.contracts.subjects import EVENTS, STATE, STREAMS
from libs.testing.sign_in import TokenSignIn
from libs.testing.simulation import make_env
from tests.security.identities import A_DRIVER, B_DRIVER, CTL, SCHEDULER, event, state
from tests.security.world import World
from tests.support import eventually


def test_calls_of_nodes_are_imported_by_wildcard_patterns(sign_in: TokenSignIn) -> None:
    """An import of one literal subject would take in an answer to another call."""
    calls = re.findall(r'\{service: \{account: \w+, subject: "([^"]+)"', sign_in.config())
    assert len(calls) == 11
    assert all({">", "*"} & set(call.split(".")) for call in calls)


def test_a_seed_is_not_printed() -> None:
    key = new_nkey()
    assert key.seed not in f"{key!r} {key}"
    assert key.public in repr(key)
    assert new_nkey().seed != key.seed


SHOWN: dict[str, dict[str, str]] = {
    "nothing": {},
    "a password": {"user": "scheduler", "pass": "scheduler"},
    "a token": {"auth_token": "scheduler"},
    "a key without its seed": {"sig": "AA"},
}


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
async def test_connecting_without_a_token_is_refused(guarded: World, shown: dict[str, str]) -> None:
    if "sig" in shown:
        shown = {**shown, "nkey": guarded.sign_in.own.nkey.public}
    reader, writer = await asyncio.open_connection("127.0.0.1", guarded.server.port)
    assert (await reader.readline()).startswith(b"INFO ")
    writer.write(b"CONNECT " + msgspec.json.encode({"verbose": False, **shown}) + b"\r\nPING\r\n")
    assert (await reader.read()).strip() == b"-ERR 'Authorization Violation'"
    writer.close()
    await writer.wait_closed()


async def test_a_seed_of_anybody_but_sign_in_is_refused(guarded: World, tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    seed.write_text(new_nkey().seed)
    with pytest.raises(SubjectForbidden, match="give a token"):
        async with connect(
            url=guarded.server.url,
            identity=SCHEDULER,
            env=make_env(),
            credentials=Credentials(nkey_seed_file=str(seed)),
        ):
            pass


async def test_the_token_determines_the_identity(guarded: World) -> None:
    """The inbox prefix and name of another identity are refused."""
    attacker = await guarded.raw_client(A_DRIVER)
    attacker.identity = B_DRIVER
    messages = await attacker.listen(f"{subjects.inbox(attacker.identity)}.>")
    await attacker.send(state(attacker.identity), b"x")
    assert len(attacker.violations) == 2
    assert messages == []


async def test_a_node_has_few_subscriptions(guarded: World) -> None:
    attacker = await guarded.raw_client(A_DRIVER)
    inbox = subjects.inbox(A_DRIVER)
    await attacker.listen(*(f"{inbox}.{number}" for number in range(16)))
    assert attacker.violations == []
    await attacker.client.subscribe(f"{inbox}.more")
    await eventually(lambda: attacker.client.is_closed)
    assert "maximum subscriptions exceeded" in str(attacker.client.last_error).lower()


async def test_the_largest_message_of_any_stream_fits_and_little_more(guarded: World) -> None:
    raw = await guarded.raw_client(CTL)
    most = max(stream.max_message for stream in STREAMS)
    assert most < raw.client.max_payload < 2 * most


async def test_a_node_that_stores_all_that_it_may_changes_nothing_for_others(
    guarded: World,
) -> None:
    """Every subject of a component many times over, in messages of the largest size."""
    attacker = await guarded.raw_client(A_DRIVER)
    before = (await guarded.kept())["command"]
    reports = [*report_subjects(A_DRIVER.writer, cluster="default", node=A_DRIVER.node)]
    events = [*event_subjects(A_DRIVER.writer, cluster="default", node=A_DRIVER.node)]
    largest = {str(each): bytes(STATE.max_message) for each in reports}
    largest |= {str(each): bytes(EVENTS.max_message) for each in events}
    for subject, data in largest.items():
        for _ in range(EVENTS.per_subject + 20 if ".event." in subject else 3):
            await attacker.client.publish(subject, data)
    await attacker.flush()

    kept = await guarded.kept()

    assert attacker.violations == []
    assert kept["command"] == before
    assert (state(B_DRIVER), b"my facts") in [each[1:] for each in kept["state"]]
    assert (event(B_DRIVER), b"my event") in [each[1:] for each in kept["event"]]
    assert len(kept["state"]) == len(reports) + 1
    of_attacker = [subject for _, subject, _ in kept["event"] if subject in largest]
    assert len(of_attacker) == len(events) * EVENTS.per_subject


async def test_the_disk_of_the_server_is_limited(guarded: World) -> None:
    """The streams reserve all that their account may use, and there cannot be another one."""
    config = guarded.sign_in.config()
    reserved = sum(stream.max_bytes for stream in STREAMS)
    assert f"max_file: {reserved}\n" in config
    assert f"max_streams: {len(STREAMS)}\n" in config
    for stream in STREAMS:
        answer = await guarded.scheduler.request(
            subjects.js_api("STREAM", "UPDATE", stream.name),
            msgspec.json.encode({**configuration(stream), "max_bytes": 2 * reserved}),
        )
        assert "insufficient storage" in msgspec.json.decode(answer)["error"]["description"]


TLS = Tls(cert_file="/tls/tls.crt", key_file="/tls/tls.key", ca_file="/tls/ca.crt")
CLUSTER = ServerCluster(
    name="sluice", listen="0.0.0.0:6222", routes=("nats-route://nats-0.nats:6222",), size=3
)


def test_tls_comes_first_for_clients_and_is_mutual_between_servers(sign_in: TokenSignIn) -> None:
    config = server_config(sign_in.settings(), tls=TLS, cluster=CLUSTER)
    of_clients, of_routes = (part.split("}")[0].split("\n") for part in config.split("tls {")[1:])
    files = {f'{name}: "/tls/{file}"' for name, file in FILES.items()}
    assert {line.strip() for line in of_clients} - {""} == {
        *files,
        "timeout: 10",
        "handshake_first: true",
    }
    assert {line.strip() for line in of_routes} - {""} == {
        *files,
        "timeout: 10",
        "verify_cert_and_check_known_urls: true",
    }


FILES = {"cert_file": "tls.crt", "key_file": "tls.key", "ca_file": "ca.crt"}


def test_streams_with_three_copies_may_use_three_times_as_much_disk(sign_in: TokenSignIn) -> None:
    """The server counts every copy against the account."""
    reserved = sum(stream.max_bytes for stream in STREAMS)
    for size in (1, 3):
        cluster = msgspec.structs.replace(CLUSTER, size=size)
        config = server_config(sign_in.settings(), tls=TLS, cluster=cluster)
        assert f"max_file: {size * reserved}\n" in config


def test_a_cluster_without_tls_is_refused(sign_in: TokenSignIn) -> None:
    with pytest.raises(ValueError, match=r"whoever reaches 0\.0\.0\.0:6222 could join"):
        server_config(sign_in.settings(), cluster=CLUSTER)


def test_a_stream_has_one_or_three_copies() -> None:
    with pytest.raises(ValueError, match="1 or 3 copies, not 2"):
        msgspec.structs.replace(CLUSTER, size=2)
