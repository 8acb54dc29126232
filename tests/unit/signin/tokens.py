"""Tokens of one cluster for the tests of sign-in, genuine and forged."""

from collections.abc import Callable
from typing import Any

from libs.testing.tokens import ISSUER, Bound, TokenIssuer
from services.signin.claims import Holder, Refused, Trust, holder_of
from services.signin.signatures import UnknownKey, parse_keys, verify

NAMESPACE = "gpu-operator"
TRUST = Trust(issuer=ISSUER, namespace=NAMESPACE, cluster="default")
NOW = 1_800_000_000.0
ACCOUNT_UID = "aaaaaaaa-0000-4000-8000-000000000001"
POD = Bound("sluice-driver-agent-x7k2p", "bbbbbbbb-0000-4000-8000-000000000002")
NODE = Bound("gpu-7.example.com", "cccccccc-0000-4000-8000-000000000003")


class FixedClock:
    """A clock that stands still, except that a sleep moves it."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time - NOW

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


CLOCK = FixedClock()
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
