"""What the API server says about a token, and what is made of it."""

import json
from typing import Any

import pytest

from libs.kube.errors import MalformedResponse
from libs.kube.resources import NODES
from libs.testing.apiserver.faults import Fault, SlowBody
from services.signin.claims import Cause, Holder
from services.signin.reviews import judge_review
from tests.unit.signin.tokens import ACCOUNT_UID, NAMESPACE, TOKENS, agent_claims, judge
from tests.unit.signin.world import Agent, World, play

USERNAME = f"system:serviceaccount:{NAMESPACE}:sluice-driver"


def holder() -> Holder:
    found = judge(TOKENS.sign(agent_claims()))
    assert isinstance(found, Holder)
    return found


def answer(**changes: Any) -> bytes:
    """Return the answer of an API server that accepts the token."""
    status = {
        "authenticated": True,
        "audiences": ["sluice"],
        "user": {"username": USERNAME, "uid": ACCOUNT_UID, "groups": ["system:authenticated"]},
        **changes,
    }
    return json.dumps({"kind": "TokenReview", "status": status}).encode()


def test_a_token_that_the_api_server_accepts_is_accepted() -> None:
    assert judge_review(answer(), holder()) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"authenticated": False},
        {"audiences": []},
        {"audiences": ["https://kubernetes.default.svc"]},
        {"user": {"username": USERNAME, "uid": "of another account of this name"}},
        {"user": {"username": "system:admin", "uid": ACCOUNT_UID}},
        {"user": {}},
    ],
)
def test_a_token_of_someone_else_or_for_something_else_is_refused(changes: dict[str, Any]) -> None:
    refused = judge_review(answer(**changes), holder())
    assert refused is not None
    assert (refused.cause, refused.reason) == (
        Cause.REVIEW,
        "the API server refuses the token: it is for someone else",
    )


def test_the_reason_of_the_api_server_is_repeated() -> None:
    body = answer(authenticated=False, error="[invalid bearer token, \nit ended]")
    refused = judge_review(body, holder())
    assert refused is not None
    assert refused.reason.endswith("[invalid bearer token, ?it ended]")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"kind":"TokenReview"}',
        answer().replace(b'"TokenReview"', b'"Status"'),
        b'{"kind":"TokenReview","status":' + b"[" * 5000,
    ],
)
def test_an_answer_that_is_no_review(body: bytes) -> None:
    with pytest.raises(MalformedResponse):
        judge_review(body, holder())


def test_a_pod_that_is_deleted_during_its_review() -> None:
    agents: list[Agent] = []

    async def before(world: World) -> None:
        agent = await world.agent()
        agents.append(agent)
        # Its node is not known, so the token is reviewed first.
        await world.kube.delete(NODES, agent.node.name, uid=agent.node.uid)

    async def story(world: World) -> None:
        (agent,) = agents
        assert (await world.sign_in(agent.token())).error == ""
        world.server.faults.add(
            Fault(effect=SlowBody(piece=1 << 20, seconds=1.0), kind="TokenReview")
        )
        reply = world.ask(agent.token())
        await world.clock.sleep(0.5)
        await world.delete(agent)
        await world.clock.sleep(1.0)
        found = world.answer(reply)
        assert found is not None
        assert "driver-on-gpu-1 was deleted" in found.error
        assert world.value("reviews_total", outcome="accepted") == 2

    play(story, before=before)
