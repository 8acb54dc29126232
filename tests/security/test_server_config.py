"""The configuration of the server, and the connections that it admits."""

import asyncio
import random
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from libs.bus.credentials import Credentials
from libs.bus.nats.bus import connect
from libs.bus.nats.jetstream import configuration
from libs.bus.port import SubjectForbidden
from libs.bus.server_config import ServerCluster, Tls, User, new_nkey, server_config
from libs.contracts import subjects
from libs.contracts.identities import CLUSTER_WRITERS, COMPONENTS, Identity, Writer
from libs.contracts.senders import event_subjects, report_subjects
from libs.contracts.subjects import EVENTS, STATE, STREAMS
from libs.testing.nats import binary
from libs.testing.simulation import make_env
from tests.security.identities import A_DRIVER, B_DRIVER, CTL, SCHEDULER, event, state
from tests.security.world import KeyCredentials, RawClient, World
from tests.support import eventually


def users(nodes: int) -> list[User]:
    identities = [
        *(Identity(writer=each) for each in CLUSTER_WRITERS if each != Writer.SIGN_IN),
        *(
            Identity(writer=each, node=f"gpu-{n}.example")
            for n in range(nodes)
            for each in COMPONENTS
        ),
    ]
    return [User(identity=each, public_key=new_nkey().public) for each in identities]


@pytest.mark.dear("a key for each user of the largest fleet")
def test_the_server_accepts_11400_users(tmp_path: Path) -> None:
    fleet = users(1_900)
    config = tmp_path / "server.conf"
    config.write_text(server_config(fleet))

    completed = subprocess.run(
        [binary(), "-t", "-c", config], capture_output=True, text=True, timeout=60, check=False
    )

    assert completed.returncode == 0, completed.stderr
    assert config.read_text().count("nkey: ") == len(fleet) == 11_406


def test_the_order_of_the_users_does_not_matter() -> None:
    some = users(3)
    other = random.Random(1).sample(some, len(some))
    assert other != some
    assert server_config(other) == server_config(some)


def test_every_user_has_its_own_line_with_its_name() -> None:
    some = users(2)
    lines = [line.strip() for line in server_config(some).splitlines()]
    for user in some:
        assert user.public_key in lines[lines.index(f"# {user.identity}") + 1]


def test_calls_of_nodes_are_imported_by_wildcard_patterns() -> None:
    """An import of one literal subject would take in an answer to another call."""
    calls = re.findall(r'\{service: \{account: \w+, subject: "([^"]+)"', server_config(users(1)))
    assert len(calls) == 11
    assert all({">", "*"} & set(call.split(".")) for call in calls)


def test_a_user_has_a_key_of_its_own() -> None:
    key = new_nkey().public
    shared = [User(identity=each, public_key=key) for each in (A_DRIVER, B_DRIVER)]
    with pytest.raises(ValueError, match="one key for each"):
        server_config(shared)


KEY = "UA5O4YQDXB3PJC7A6MMAHT7NRFQHRF6CMVUVYSE3D3YC64WJE4LVXA6L"
NO_KEYS = {
    "a seed": new_nkey().seed,
    "another alphabet": f"{KEY[:-1]}_",
    "two letters that changed places": KEY[:9] + KEY[10:8:-1] + KEY[11:],
    "more than a key": f"{KEY}}}",
    "nothing": "",
}


@pytest.mark.parametrize("text", NO_KEYS.values(), ids=NO_KEYS)
def test_a_malformed_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"default/a\.example/driver: .* is not the public key"):
        User(identity=A_DRIVER, public_key=text)


def test_a_valid_key_is_accepted() -> None:
    assert User(identity=A_DRIVER, public_key=KEY).public_key == KEY


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
async def test_connecting_without_a_key_or_token_is_refused(
    guarded: World, shown: dict[str, str]
) -> None:
    if "sig" in shown:
        shown = {**shown, "nkey": guarded.credentials.static_key}
    reader, writer = await asyncio.open_connection("127.0.0.1", guarded.server.port)
    assert (await reader.readline()).startswith(b"INFO ")
    writer.write(b"CONNECT " + msgspec.json.encode({"verbose": False, **shown}) + b"\r\nPING\r\n")
    assert (await reader.read()).strip() == b"-ERR 'Authorization Violation'"
    writer.close()
    await writer.wait_closed()


async def test_an_unknown_key_is_refused(with_keys: World) -> None:
    with pytest.raises(SubjectForbidden, match="add this identity's key"):
        async with connect(
            url=with_keys.server.url,
            identity=SCHEDULER,
            env=make_env(),
            credentials=Credentials(nkey_seed=new_nkey().seed),
        ):
            pass


async def test_the_key_or_token_determines_the_identity(guarded: World) -> None:
    """The inbox prefix and name of another identity are refused."""
    attacker = await guarded.raw_client(A_DRIVER)
    attacker.identity = B_DRIVER
    messages = await attacker.listen(f"{subjects.inbox(attacker.identity)}.>")
    await attacker.send(state(attacker.identity), b"x")
    assert len(attacker.violations) == 2
    assert messages == []


async def test_nodes_are_added_and_removed_while_the_server_runs(with_keys: World) -> None:
    key, newcomer = new_nkey(), Identity(writer=Writer.DRIVER, node="new.example")
    assert isinstance(with_keys.credentials, KeyCredentials)
    known = [each for each in with_keys.credentials.users if each.identity != A_DRIVER]
    leaver, stays = await with_keys.raw_client(A_DRIVER), await with_keys.raw_client(B_DRIVER)

    await with_keys.server.reload(
        server_config([*known, User(identity=newcomer, public_key=key.public)])
    )

    joined = await RawClient.connect(with_keys.server.url, newcomer, nkeys_seed_str=key.seed)
    for raw in (joined, stays):
        answer = await raw.ask(state(raw.identity), b"here")
        assert msgspec.json.decode(answer.data)["stream"] == "STATE"
    assert joined.violations == stays.violations == []
    await joined.send(state(B_DRIVER), b"not mine", reply=state(A_DRIVER))
    assert len(joined.violations) == 1
    await eventually(lambda: leaver.client.is_closed)
    kept = {subject: data for _, subject, data in (await with_keys.kept())["state"]}
    assert kept == {state(newcomer): b"here", state(B_DRIVER): b"here"}
    await joined.client.close()


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
    config = guarded.credentials.config()
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


def test_tls_comes_first_for_clients_and_is_mutual_between_servers() -> None:
    config = server_config(users(1), tls=TLS, cluster=CLUSTER)
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


def test_streams_with_three_copies_may_use_three_times_as_much_disk() -> None:
    """The server counts every copy against the account."""
    reserved = sum(stream.max_bytes for stream in STREAMS)
    for size in (1, 3):
        cluster = msgspec.structs.replace(CLUSTER, size=size)
        config = server_config(users(1), tls=TLS, cluster=cluster)
        assert f"max_file: {size * reserved}\n" in config


def test_a_cluster_without_tls_is_refused() -> None:
    with pytest.raises(ValueError, match=r"whoever reaches 0\.0\.0\.0:6222 could join"):
        server_config(users(1), cluster=CLUSTER)


def test_a_stream_has_one_or_three_copies() -> None:
    with pytest.raises(ValueError, match="1 or 3 copies, not 2"):
        msgspec.structs.replace(CLUSTER, size=2)
