"""Who holds a token: every genuine holder, and every token that is refused, in words."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.identities import CLUSTER_WRITERS, COMPONENTS, Identity, Writer
from libs.policy.installation import service_account_of
from libs.policy.render.agents import AUDIENCE
from services.signin import claims as signin_claims
from services.signin.claims import Cause, Holder, Refused, holder_of
from tests.unit.signin.tokens import (
    ACCOUNT_UID,
    NAMESPACE,
    NODE,
    NOW,
    POD,
    TOKENS,
    TRUST,
    agent_claims,
    judge,
    rebound,
)

SIGNED_IN = [writer for writer in Writer if writer is not Writer.SIGN_IN]


def verdict(claims: dict[str, Any], *, now: float = NOW) -> Holder | Refused:
    found = judge(TOKENS.sign(claims), now=now)
    assert isinstance(found, Holder | Refused)
    return found


def refusal(claims: dict[str, Any], *, now: float = NOW) -> tuple[Cause, str]:
    found = verdict(claims, now=now)
    assert isinstance(found, Refused), found
    assert "\n" not in found.reason
    return found.cause, found.reason


@pytest.mark.parametrize("writer", COMPONENTS)
def test_a_component_is_the_one_of_the_node_in_its_token(writer: Writer) -> None:
    found = verdict(agent_claims(writer.value))
    assert isinstance(found, Holder)
    assert found.identity == Identity(writer=writer, node=NODE.name)
    assert (found.pod_name, found.pod_uid) == (POD.name, POD.uid)
    assert (found.node, found.node_uid) == (NODE.name, NODE.uid)
    assert found.account == f"system:serviceaccount:{NAMESPACE}:sluice-{writer}"
    assert (found.account_uid, found.expires) == (ACCOUNT_UID, NOW + 3600)


@pytest.mark.parametrize("writer", [w for w in SIGNED_IN if w in CLUSTER_WRITERS])
def test_a_cluster_writer_belongs_to_no_node(writer: Writer) -> None:
    claims = agent_claims(writer.value)
    if writer is Writer.CTL:
        claims = rebound(claims, pod=None, node=None)
    found = verdict(claims)
    assert isinstance(found, Holder)
    assert found.identity == Identity(writer=writer)
    assert found.pod_uid == ("" if writer is Writer.CTL else POD.uid)
    assert found.token_id == claims["jti"]


def test_names_are_those_of_the_installation() -> None:
    assert signin_claims.AUDIENCE == AUDIENCE
    for writer in SIGNED_IN:
        assert service_account_of(writer) == f"{signin_claims.ACCOUNT_PREFIX}{writer.value}"
    assert set(SIGNED_IN) == signin_claims.SIGNED_IN


def test_a_tenants_pod_that_asks_for_our_audience_is_none_of_our_accounts() -> None:
    """A token with our audience is for anyone who can create pods; the account is not."""
    tenant = agent_claims(sub="system:serviceaccount:tenant:sluice-driver")
    cause, reason = refusal(rebound(tenant, namespace="tenant"))
    assert cause is Cause.ACCOUNT
    assert "'system:serviceaccount:tenant:sluice-driver' is none of Sluice's accounts" in reason


@pytest.mark.parametrize(
    "account", ["default", "driver", "sluice-", "sluice-sign-in", "sluice-driver-container"]
)
def test_other_accounts_of_our_namespace_are_refused(account: str) -> None:
    claims = agent_claims(sub=f"system:serviceaccount:{NAMESPACE}:{account}")
    cause, _ = refusal(rebound(claims, serviceaccount={"name": account, "uid": ACCOUNT_UID}))
    assert cause is Cause.ACCOUNT


def test_subject_and_account_must_agree() -> None:
    cause, reason = refusal(agent_claims(sub=f"system:serviceaccount:{NAMESPACE}:sluice-ctl"))
    assert (cause, "does not agree" in reason) == (Cause.MALFORMED, True)


def test_a_token_of_another_issuer_is_refused_and_both_are_named() -> None:
    cause, reason = refusal(agent_claims(iss="https://elsewhere.example"))
    assert cause is Cause.ISSUER
    assert "'https://elsewhere.example'" in reason
    assert TRUST.issuer in reason


@pytest.mark.parametrize("audience", [[], ["https://kubernetes.default.svc"], "sluicegate", [""]])
def test_a_token_for_another_audience_is_refused(audience: list[str] | str) -> None:
    cause, reason = refusal(agent_claims(aud=audience))
    assert (cause, "request one with the audience 'sluice'" in reason) == (Cause.AUDIENCE, True)


@pytest.mark.parametrize("audience", [["sluice"], ["other", "sluice"], "sluice"])
def test_a_token_for_sluice_is_accepted_beside_other_audiences(audience: list[str] | str) -> None:
    assert isinstance(verdict(agent_claims(aud=audience)), Holder)


def test_a_token_is_valid_until_a_minute_after_it_expires() -> None:
    claims = agent_claims()
    assert isinstance(verdict(claims, now=claims["exp"] + 59), Holder)
    cause, reason = refusal(claims, now=claims["exp"] + 60)
    assert (cause, reason) == (Cause.EXPIRED, "the token expired 60 s ago")


@pytest.mark.parametrize("claim", ["nbf", "iat"])
def test_a_token_is_valid_from_a_minute_before_it_begins(claim: str) -> None:
    assert isinstance(verdict(agent_claims(**{claim: NOW + 60})), Holder)
    cause, reason = refusal(agent_claims(**{claim: NOW + 61}))
    assert (cause, "valid in 61 s only" in reason) == (Cause.NOT_YET_VALID, True)


def test_a_pods_token_is_bound_to_its_pod() -> None:
    for writer in ("driver", "scheduler"):
        cause, reason = refusal(rebound(agent_claims(writer), pod=None))
        assert (cause, "is bound to no pod" in reason) == (Cause.POD, True)


def test_a_token_of_an_agent_names_its_node_or_its_pod_is_known() -> None:
    """Before Kubernetes 1.30 no token names a node."""
    token = TOKENS.sign(rebound(agent_claims(), node=None))
    found = judge(token)
    assert isinstance(found, Refused)
    assert (found.cause, "names no node" in found.reason) == (Cause.NODE, True)
    known = judge(token, node_of={POD.uid: "gpu-3"}.__getitem__)
    assert isinstance(known, Holder)
    assert (known.identity.node, known.node_uid) == ("gpu-3", "")


def test_people_have_no_pod_and_no_node() -> None:
    """A pod that mounts the people's account would be a service with a person's rights."""
    for bound in ({"pod": None}, {"node": None}):
        cause, reason = refusal(rebound(agent_claims("ctl"), **bound))
        assert (cause, "people request theirs" in reason) == (Cause.POD, True)


@pytest.mark.parametrize(
    "ref",
    [
        {"name": "*", "uid": NODE.uid},
        {"name": "a b", "uid": NODE.uid},
        {"name": "a" * 254, "uid": NODE.uid},
        {"name": "", "uid": NODE.uid},
    ],
)
def test_names_are_those_of_kubernetes(ref: dict[str, str]) -> None:
    assert refusal(rebound(agent_claims(), node=ref))[0] is Cause.NODE
    assert refusal(rebound(agent_claims(), pod=ref))[0] is Cause.POD


@pytest.mark.parametrize("uid", ["", "#", "a" * 65, "a\nb", "x/y"])
def test_uids_are_short_and_plain(uid: str) -> None:
    assert refusal(rebound(agent_claims(), pod={"name": POD.name, "uid": uid}))[0] is Cause.POD
    account = {"name": "sluice-driver", "uid": uid}
    assert refusal(rebound(agent_claims(), serviceaccount=account))[0] is Cause.MALFORMED


@pytest.mark.parametrize("claim", ["iss", "sub", "aud", "exp", "nbf", "iat", "kubernetes.io"])
def test_every_claim_is_required(claim: str) -> None:
    assert refusal(agent_claims(**{claim: None}))[0] is Cause.MALFORMED


@pytest.mark.parametrize("expires", [True, "soon", -1, 1e300])
def test_times_are_times(expires: object) -> None:
    assert refusal(agent_claims(exp=expires))[0] is Cause.MALFORMED


def test_deep_claims_are_refused() -> None:
    payload = b'{"iss":' + b"[" * 8000 + b"]" * 8000 + b"}"
    found = holder_of(payload, trust=TRUST, now=NOW, node_of=lambda _: "")
    assert isinstance(found, Refused)
    assert found.cause is Cause.MALFORMED


@given(st.binary(max_size=200))
def test_any_bytes_are_judged(payload: bytes) -> None:
    found = holder_of(payload, trust=TRUST, now=NOW, node_of=lambda _: "")
    assert isinstance(found, Refused)
    signin_claims.claimed_subject(payload)
