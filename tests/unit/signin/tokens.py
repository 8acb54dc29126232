"""Tokens of one cluster for the tests of sign-in, genuine and forged."""

from collections.abc import Callable
from typing import Any

from libs.testing.tokens import ISSUER, Bound, TokenIssuer
from services.signin.claims import Holder, Refused, Trust, holder_of
from services.signin.signatures import UnknownKey, parse_keys, verify
from tests.builders.manual_clock import STARTED_AT, ManualClock

NAMESPACE = "gpu-operator"
TRUST = Trust(issuer=ISSUER, namespace=NAMESPACE, cluster="default")
NOW = STARTED_AT
ACCOUNT_UID = "aaaaaaaa-0000-4000-8000-000000000001"
POD = Bound("sluice-driver-agent-x7k2p", "bbbbbbbb-0000-4000-8000-000000000002")
NODE = Bound("gpu-7.example.com", "cccccccc-0000-4000-8000-000000000003")


CLOCK = ManualClock()
TOKENS = TokenIssuer(clock=CLOCK)


def agent_claims(writer: str = "driver", /, **overrides: Any) -> dict[str, Any]:
    """Return the claims of an agent's token; an override of None removes a claim."""
    account = Bound(f"sluice-{writer}", ACCOUNT_UID)
    claims = TOKENS.claims(namespace=NAMESPACE, account=account, pod=POD, node=NODE)
    claims |= overrides
    return {name: value for name, value in claims.items() if value is not None}


def rebound(claims: dict[str, Any], **bound: Any) -> dict[str, Any]:
    """Return the claims with other objects that the token is bound to; None removes one."""
    objects = {**claims["kubernetes.io"], **bound}
    kept = {name: value for name, value in objects.items() if value is not None}
    return {**claims, "kubernetes.io": kept}


def judge(
    token: str,
    *,
    now: float = NOW,
    tokens: TokenIssuer = TOKENS,
    node_of: Callable[[str], str] = lambda _uid: "",
) -> Holder | Refused | UnknownKey:
    """Verify a token as the service does, with the published keys."""
    payload = verify(token, parse_keys(tokens.jwks()))
    if not isinstance(payload, bytes):
        return payload
    return holder_of(payload, trust=TRUST, now=now, node_of=node_of)
