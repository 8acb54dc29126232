"""Every refusal: in words in the log of sign-in, and without a reason for the client."""

import json
from collections.abc import Callable
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


def refused_token(make: Callable[[World, Agent], str]) -> tuple[str, str]:
    """Return the refusal of a token that `make` builds from a genuine agent."""

    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        await refused(world, make(world, agent))

    return refusal(story)


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


def test_expired() -> None:
    cause, reason = refused_token(lambda world, agent: _at(world, agent, exp=-100))
    assert (cause, reason) == ("expired", "the token expired 100 s ago")


def test_not_yet_valid() -> None:
    cause, _ = refused_token(lambda world, agent: _at(world, agent, nbf=+100))
    assert cause == "not-yet-valid"


def _at(world: World, agent: Agent, **offsets: int) -> str:
    now = int(world.clock.now())
    return agent.token(**{claim: now + offset for claim, offset in offsets.items()})


def test_wrong_audience_and_wrong_issuer() -> None:
    assert refused_token(lambda _, agent: agent.token(aud=["vault"]))[0] == "audience"
    assert refused_token(lambda _, agent: agent.token(iss="https://other"))[0] == "issuer"


def test_no_algorithm_and_a_public_key_as_password() -> None:
    def unsigned(world: World, agent: Agent) -> str:
        return assemble({"alg": "none"}, agent.claims(), b"")

    def symmetric(world: World, agent: Agent) -> str:
        header = {"alg": "HS256", "kid": world.server.issuer.keys[0].id}
        return assemble(header, agent.claims(), b"x" * 32)

    assert refused_token(unsigned)[0] == "algorithm"
    assert refused_token(symmetric)[0] == "algorithm"


def test_a_token_of_a_megabyte() -> None:
    """The server takes less from a client, so the request is refused before its token is read."""

    async def story(world: World) -> None:
        reply = world.ask("x" * (1 << 20))
        await world.settled()
        assert world.answer(reply) is None
        assert world.value("dropped_total", reason="unreadable") == 1

    assert not lines(play(story))
    cause, reason = refused_token(lambda _, __: "x" * (16 << 10))
    assert (cause, "it is not a signed token" in reason) == ("malformed", True)


def test_no_token() -> None:
    assert refused_token(lambda _, __: "") == ("malformed", "the client sent no token")


def test_a_tenants_pod_that_asks_for_our_audience() -> None:
    def tenant(world: World, agent: Agent) -> str:
        account, pod = Bound("sluice-driver", "u1"), Bound("mine", "u2")
        claims = world.server.issuer.claims(
            namespace="tenant", account=account, pod=pod, node=agent.node
        )
        return world.server.issuer.sign(claims)

    cause, reason = refused_token(tenant)
    assert cause == "account"
    assert "'system:serviceaccount:tenant:sluice-driver' is none of Sluice's accounts" in reason


def test_another_account_of_our_namespace() -> None:
    async def story(world: World) -> None:
        agent = await world.agent("driver-container")
        await world.settled()
        await refused(world, agent.token())

    assert refusal(story)[0] == "account"


def test_a_deleted_pod() -> None:
    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        await world.delete(agent)
        await world.settled()
        await refused(world, agent.token())

    assert refusal(story) == ("pod", "the pod driver-on-gpu-1 was deleted: its tokens are void")


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


def test_a_token_of_another_pods_account_or_node() -> None:
    """The API server binds no such token; a signing key that leaked would."""

    def other_account(world: World, agent: Agent) -> str:
        account = {"name": "sluice-telemetry", "uid": "other"}
        claims = agent.claims(sub=f"system:serviceaccount:{NAMESPACE}:sluice-telemetry")
        return world.server.issuer.sign(rebound(claims, serviceaccount=account))

    def other_node(world: World, agent: Agent) -> str:
        node = {"name": "gpu-2", "uid": agent.node.uid}
        return world.server.issuer.sign(rebound(agent.claims(), node=node))

    def other_name(world: World, agent: Agent) -> str:
        pod = {"name": "another", "uid": agent.pod.uid}
        return world.server.issuer.sign(rebound(agent.claims(), pod=pod))

    cause, reason = refused_token(other_name)
    assert (cause, "but its uid is that of driver-on-gpu-1" in reason) == ("pod", True)
    assert refused_token(other_account)[0] == "pod"
    cause, reason = refused_token(other_node)
    assert (cause, "names the node gpu-2, but the pod" in reason) == ("node", True)


def test_a_node_that_was_created_again() -> None:
    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        await world.kube.delete(NODES, agent.node.name, uid=agent.node.uid)
        await world.node(agent.node.name)
        await world.settled()
        await refused(world, agent.token())

    cause, reason = refusal(story)
    assert (cause, "gpu-1 was deleted and created again" in reason) == ("node", True)


def test_a_node_that_was_deleted() -> None:
    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        await world.kube.delete(NODES, agent.node.name, uid=agent.node.uid)
        await world.settled()
        await refused(world, agent.token())

    assert refusal(story) == ("node", "the node gpu-1 was deleted")


@pytest.mark.parametrize("again", [False, True])
def test_a_deleted_account(again: bool) -> None:
    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        account = agent.account
        await world.kube.delete(
            SERVICE_ACCOUNTS, account.name, uid=account.uid, namespace=NAMESPACE
        )
        if again:
            await world.account("driver")
        await world.settled()
        await refused(world, agent.token())

    cause, reason = refusal(story)
    assert (cause, "created again" in reason) == ("account", again)


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
def test_other_kinds_of_clients(kind: str) -> None:
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
