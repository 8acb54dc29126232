"""Every refusal: in words in the log of sign-in, and without a reason for the client."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from libs.bus.connections import SHARES
from libs.bus.permissions import NODES as NODES_ACCOUNT
from libs.kube.resources import NODES, SERVICE_ACCOUNTS
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.tokens import Bound, TokenIssuer, assemble
from services.signin.claims import SESSION_GRACE
from tests.unit.signin.tokens import NAMESPACE, rebound
from tests.unit.signin.world import Agent, Story, World, play


def lines(logs: list[Any]) -> list[dict[str, Any]]:
    return [line for line in logs if line["event"] == "sign-in refused"]


def refusal(story: Story) -> tuple[str, str]:
    """Return cause and reason of the one refusal of a story."""
    (line,) = lines(play(story))
    assert line["host"] == "10.0.3.9"
    return line["cause"], line["why"]


async def refused(world: World, token: str) -> None:
    answer = await world.sign_in(token)
    assert answer.user == {}
    assert answer.error
    granted = world.value("answers_total", result="granted")
    assert granted == 0.0


def test_a_genuine_agent_is_admitted_as_its_node_and_no_other() -> None:
    async def story(world: World) -> None:
        agent = await world.agent("driver", "gpu-1")
        await world.node("gpu-2")
        await world.settled()
        answer = await world.sign_in(agent.token(jti="token-of-agent"))
        assert answer.error == ""
        assert answer.user["aud"] == NODES_ACCOUNT
        assert answer.user["name"] == str(agent.session("token-of-agent"))
        assert answer.user["name"].startswith(f"default/gpu-1/driver#{agent.pod.uid}:")
        assert answer.user["exp"] == agent.claims()["exp"] + 60 + SESSION_GRACE
        allowed = json.dumps(answer.user["nats"])
        assert ".gpu-1.driver." in allowed
        assert "gpu-2" not in allowed
        assert world.value("answers_total", result="granted") == 1

    assert not lines(play(story))


def test_people_sign_in_with_a_token_of_their_own_account() -> None:
    async def story(world: World) -> None:
        account = await world.account("ctl")
        await world.settled()
        claims = world.server.issuer.claims(namespace=NAMESPACE, account=account)
        answer = await world.sign_in(world.server.issuer.sign(claims))
        assert (answer.error, answer.user["aud"]) == ("", "SERVICES")
        token = claims["jti"]
        assert answer.user["exp"] == claims["exp"] + 60
        assert answer.user["name"] == f"default/-/ctl#{token}:{account.uid[:8]}::{token[:8]}"

    (line,) = [line for line in play(story) if line["event"] == "signed in"]
    assert line["log_level"] == "info"
    assert line["token"]


def _at(world: World, agent: Agent, **offsets: int) -> str:
    now = int(world.clock.now())
    return agent.token(**{claim: now + offset for claim, offset in offsets.items()})


def _symmetric(world: World, agent: Agent) -> str:
    header = {"alg": "HS256", "kid": world.server.issuer.keys[0].id}
    return assemble(header, agent.claims(), b"x" * 32)


def _of_a_tenant(world: World, agent: Agent) -> str:
    account, pod = Bound("sluice-driver", "u1"), Bound("mine", "u2")
    issuer = world.server.issuer
    return issuer.sign(issuer.claims(namespace="tenant", account=account, pod=pod, node=agent.node))


def _rebound(world: World, agent: Agent, claims: dict[str, Any] | None = None, **bound: Any) -> str:
    """Return a token that is bound as no API server binds one; a leaked signing key would."""
    return world.server.issuer.sign(rebound(claims or agent.claims(), **bound))


def _of_another_account(world: World, agent: Agent) -> str:
    account = {"name": "sluice-telemetry", "uid": "other"}
    claims = agent.claims(sub=f"system:serviceaccount:{NAMESPACE}:sluice-telemetry")
    return _rebound(world, agent, claims, serviceaccount=account)


TOKENS: dict[str, tuple[Callable[[World, Agent], str], str, str]] = {
    "expired": (
        lambda world, agent: _at(world, agent, exp=-100),
        *("expired", "the token expired 100 s ago"),
    ),
    "not yet valid": (lambda world, agent: _at(world, agent, nbf=+100), "not-yet-valid", ""),
    "another audience": (lambda _, agent: agent.token(aud=["vault"]), "audience", ""),
    "another issuer": (lambda _, agent: agent.token(iss="https://other"), "issuer", ""),
    "no algorithm": (
        lambda _, agent: assemble({"alg": "none"}, agent.claims(), b""),
        *("algorithm", ""),
    ),
    "a public key as password": (_symmetric, "algorithm", ""),
    "none": (lambda _, __: "", "malformed", "the client sent no token"),
    "a text of 16 KiB": (lambda _, __: "x" * (16 << 10), "malformed", "it is not a signed token"),
    "a tenant's pod that asks for our audience": (
        _of_a_tenant,
        "account",
        "'system:serviceaccount:tenant:sluice-driver' is none of Sluice's accounts",
    ),
    "another name of the pod": (
        lambda world, agent: _rebound(world, agent, pod={"name": "another", "uid": agent.pod.uid}),
        *("pod", "but its uid is that of driver-on-gpu-1"),
    ),
    "another account": (_of_another_account, "pod", ""),
    "another node": (
        lambda world, agent: _rebound(world, agent, node={"name": "gpu-2", "uid": agent.node.uid}),
        *("node", "names the node gpu-2, but the pod"),
    ),
}
"""How a token is made from a genuine agent; the cause of its refusal, and words of the reason."""


@pytest.mark.parametrize(("make", "cause", "words"), TOKENS.values(), ids=TOKENS)
def test_a_token_that_is_refused(
    make: Callable[[World, Agent], str], cause: str, words: str
) -> None:
    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        await refused(world, make(world, agent))

    found, reason = refusal(story)
    assert (found, words in reason) == (cause, True)


def test_a_token_of_a_megabyte_is_dropped_unread() -> None:
    """The server takes less from a client, so the request is refused before its token is read."""

    async def story(world: World) -> None:
        reply = world.ask("x" * (1 << 20))
        await world.settled()
        assert world.answer(reply) is None
        assert world.value("dropped_total", reason="unreadable") == 1

    assert not lines(play(story))


def test_another_account_of_our_namespace_is_refused() -> None:
    async def story(world: World) -> None:
        agent = await world.agent("driver-container")
        await world.settled()
        await refused(world, agent.token())

    assert refusal(story)[0] == "account"


async def _delete_node(world: World, agent: Agent) -> None:
    await world.kube.delete(NODES, agent.node.name, uid=agent.node.uid)


async def _create_node_again(world: World, agent: Agent) -> None:
    await _delete_node(world, agent)
    await world.node(agent.node.name)


async def _delete_account(world: World, agent: Agent) -> None:
    name, uid = agent.account.name, agent.account.uid
    await world.kube.delete(SERVICE_ACCOUNTS, name, uid=uid, namespace=NAMESPACE)


async def _create_account_again(world: World, agent: Agent) -> None:
    await _delete_account(world, agent)
    await world.account("driver")


DEPARTURES: dict[str, tuple[Callable[[World, Agent], Awaitable[None]], str, str]] = {
    "pod": (World.delete, "pod", "the pod driver-on-gpu-1 was deleted: its tokens are void"),
    "node": (_delete_node, "node", "the node gpu-1 was deleted"),
    "node, made again": (_create_node_again, "node", "gpu-1 was deleted and created again"),
    "account": (_delete_account, "account", "was deleted: its tokens are void"),
    "account, made again": (_create_account_again, "account", "created again"),
}
"""What is deleted after a token was made; the cause of the refusal, and words of the reason."""


@pytest.mark.parametrize(("change", "cause", "words"), DEPARTURES.values(), ids=DEPARTURES)
def test_what_a_token_is_bound_to_was_deleted(
    change: Callable[[World, Agent], Awaitable[None]], cause: str, words: str
) -> None:
    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        await change(world, agent)
        await world.settled()
        await refused(world, agent.token())

    found, reason = refusal(story)
    assert (found, words in reason) == (cause, True)


def test_a_pod_that_was_deleted_before_this_process_started() -> None:
    tokens: list[str] = []

    async def before(world: World) -> None:
        agent = await world.agent()
        tokens.append(agent.token())
        await world.delete(agent)

    async def story(world: World) -> None:
        await refused(world, tokens[0])

    (line,) = lines(play(story, before=before))
    assert line["cause"] == "review"
    assert "service account token has been invalidated" in line["why"]


def test_an_unknown_key_makes_the_keys_be_read_once_a_minute() -> None:
    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        other = TokenIssuer(clock=world.clock)
        key_reads = world.server.faults.add(
            Fault(effect=RefuseRequest(503), verbs=("get",), user="us", times=1000)
        )
        for _ in range(5):
            answer = await world.sign_in(other.sign(agent.claims()))
            assert answer.error
        assert key_reads.hit_count == 1

    cause, reason = refusal(story)
    assert (cause, "is none of the API server's" in reason) == ("unknown-key", True)


def test_a_new_key_of_the_api_server_is_read_when_it_is_used() -> None:
    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        world.server.issuer.rotate()
        assert (await world.sign_in(agent.token())).error == ""

    assert not lines(play(story))


def test_an_identity_with_its_share_of_connections() -> None:
    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        world.connections.open = [agent.session()] * SHARES[NODES_ACCOUNT]
        await refused(world, agent.token())
        world.connections.open.pop()
        assert (await world.sign_in(agent.token())).error == ""

    cause, reason = refusal_of_first(story)
    assert (cause, "default/gpu-1/driver has 4 connections" in reason) == ("share", True)


def refusal_of_first(story: Story) -> tuple[str, str]:
    first, *_ = lines(play(story))
    return first["cause"], first["why"]


@pytest.mark.parametrize("kind", ["websocket", "mqtt", "leafnode"])
def test_other_kinds_of_clients_are_refused(kind: str) -> None:
    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        answer = await world.sign_in(agent.token(), kind=kind)
        assert answer.user == {}

    cause, reason = refusal(story)
    assert (cause, f"a {kind} client is not served" in reason) == ("client", True)


def test_a_flood_of_refusals_is_few_lines() -> None:
    async def story(world: World) -> None:
        for number in range(3000):
            world.ask("x.y.z", host=f"10.0.{number % 500 // 250}.{number % 250}")
        await world.settled()
        await world.clock.sleep(60)
        await world.sign_in("x.y.z")

    logs = play(story)
    assert len(lines(logs)) == 101
    (summary,) = [line for line in logs if line["event"] == "sign-ins refused without a line each"]
    assert summary["refused"] == 3000 - 100 - sum(line["repeated"] for line in lines(logs)) - 500


def test_the_claimed_subject_is_logged_and_harmless() -> None:
    def forged(world: World, agent: Agent) -> str:
        claims = agent.claims(sub="a\nb\x1b[31m" + "c" * 500)
        return assemble({"alg": "ES256", "kid": "x"}, claims, b"")

    async def story(world: World) -> None:
        agent = await world.agent()
        await refused(world, forged(world, agent))

    (line,) = lines(play(story))
    assert line["claimed"].startswith("a?b?[31mcc")
    assert len(line["claimed"]) <= 121
    assert "\n" not in line["claimed"]
