"""Random tokens: what an attacker can send, and what an API server never writes.

Each comes with the session that it may open at most, by an account of the rules that shares nothing
with the service.
"""

import base64
import hmac
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from joserfc import jws

from libs.bus.sessions import Session
from libs.testing.tokens import ISSUER, SigningKey, TokenIssuer, assemble
from tests.unit.signin.tokens import NAMESPACE
from tests.unit.signin.world import Agent

LEEWAY: Final = 60.0
_DEEP: Final = json.loads("[" * 400 + "]" * 400)
_VALUES: Final[Sequence[Any]] = (
    *(None, "", 0, -1, 1, 1e308, 2**64, True, False, [], {}, [[]], "*", ">", "-", ".", "#", "/"),
    *("sluice", ["sluice"], ["vault"], ["sluice", "vault"], "default", "\x00", "\ud7ff", "gpu-2"),
    *(
        "x" * 300,
        ["x"] * 300,
        _DEEP,
        "gpu-1.driver",
        "GPU-1",
        "gpu-1 ",
        "gpu-\u00ad1",
        "sluice-ctl",
    ),
)
_ALGORITHMS: Final = (
    *("none", "None", "NONE", "", "HS256", "HS512", "RS256", "RS512", "PS256", "ES256", "ES384"),
    *("EdDSA", "dir", "RSA-OAEP", "ES256K", "rs256", " RS256"),
)
_NAMES: Final = (
    *("https://kubernetes.default.svc", f"{ISSUER}/", f"{ISSUER}.example", ISSUER.upper(), "me"),
    *("system:serviceaccount:default:sluice-driver", "system:serviceaccount::", "system:admin"),
)
_SHIFTS: Final = (-4e3, -90.0, -30, 0, 30, 90.0, 4e3, 1e17)
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_CHARACTERS: Final = "ABCxyz019-_=.+/ \n\t\x00{}[]é€"


class Forged(NamedTuple):
    token: str
    session: str
    """The name of the session that it may open; empty if it must be refused."""


class Forger:
    """Makes tokens for two genuine agents, one of which is forged."""

    def __init__(self, issuer: TokenIssuer, agents: Sequence[Agent], now: Callable[[], float]):
        self._issuer = issuer
        self._agents = agents
        self._now = now
        self._own = [SigningKey("ES256"), SigningKey("RS256"), SigningKey("ES384")]

    def genuine(self, chance: random.Random) -> Forged:
        claims = chance.choice(self._agents).claims()
        token = self._issuer.sign(claims, key=chance.choice(self._issuer.keys))
        return Forged(token, self._session(claims))

    def forged(self, chance: random.Random) -> Forged:
        return chance.choice(_FORGERIES)(self, chance)

    # What whoever reaches the server can send.

    def garbage(self, chance: random.Random) -> Forged:
        length = chance.choice((0, 1, 5, 300, 5_000, 15_000))
        text = "".join(chance.choice(_CHARACTERS) for _ in range(length))
        dotted = ".".join([text] * chance.randrange(7))
        return Forged(chance.choice((text, dotted, "a.b.c", "..", "e30.e30.", "null")), "")

    def changed_text(self, chance: random.Random) -> Forged:
        genuine = self.genuine(chance)
        text = list(genuine.token)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(text))
            text[place : place + chance.randrange(2)] = chance.choices(
                _CHARACTERS, k=chance.randrange(3)
            )
        token = "".join(text)
        return Forged(token, genuine.session if _content(token) == _content(genuine.token) else "")

    def other_signature(self, chance: random.Random) -> Forged:
        genuine, other = self.genuine(chance), self.genuine(chance)
        if _header(genuine.token)["alg"] == "ES256" and chance.random() < 0.1:
            return Forged(second_signature(genuine.token), genuine.session)
        head, _, signature = genuine.token.rpartition(".")
        raw = _decoded(signature)
        signatures = (
            b"",
            bytes(len(raw)),
            b"\xff" * len(raw),
            raw[:-1],
            raw + b"\x00",
            b"\x30\x44" + raw,
            chance.randbytes(len(raw)),
            chance.randbytes(3_000),
            _decoded(other.token.rpartition(".")[2]),
        )
        token = f"{head}.{_encoded(chance.choice(signatures))}"
        return Forged(token, genuine.session if _content(token) == _content(genuine.token) else "")

    def mixed(self, chance: random.Random) -> Forged:
        parts = [self.genuine(chance).token.split(".") for _ in range(3)]
        token = ".".join(part[place] for place, part in enumerate(parts))
        found = [each for each in parts if each == token.split(".")]
        return Forged(token, self._session(_claims(token)) if found else "")

    def other_header(self, chance: random.Random) -> Forged:
        token = self.genuine(chance).token
        header = _header(token)
        changed = chance.choice(
            (
                {"alg": chance.choice(_ALGORITHMS)},
                {"kid": chance.choice(_VALUES)},
                {"jwk": self._own[0].jwk()},
                {"jku": "https://attacker.example/keys"},
                {"crit": ["b64"], "b64": False},
                {"x5c": ["AAAA"]},
                {"zip": "DEF"},
                {"enc": "A256GCM", "alg": "dir"},
                {chance.choice(("typ", "cty", "x")): chance.choice(_VALUES)},
            )
        )
        whole: Any = chance.choice(([], "x", None, 1)) if chance.random() < 0.1 else None
        signature = _decoded(token.rpartition(".")[2])
        claims = _claims(token)
        forged = assemble(whole if whole is not None else {**header, **changed}, claims, signature)
        return Forged(forged, self._session(claims) if forged == token else "")

    def own_key(self, chance: random.Random) -> Forged:
        """Sign with a key of the attacker's, under the id of a genuine one or of its own."""
        claims, key = chance.choice(self._agents).claims(), chance.choice(self._own)
        ids = (self._issuer.keys[0].id, self._issuer.keys[-1].id, key.id, "")
        header: dict[str, Any] = {"alg": key.algorithm, "kid": chance.choice(ids)}
        if chance.random() < 0.3:
            header["jwk"] = key.jwk()
        signed = jws.serialize_compact(
            header, json.dumps(claims), key.private, algorithms=[key.algorithm]
        )
        return Forged(signed, "")

    def shared_secret(self, chance: random.Random) -> Forged:
        """Use a public key as if it were a secret, or no key at all."""
        key, claims = chance.choice(self._issuer.keys), chance.choice(self._agents).claims()
        secrets = (key.public_pem(), json.dumps(key.jwk()).encode(), b"", key.id.encode())
        algorithm = chance.choice(("HS256", "none", key.algorithm))
        head = assemble({"alg": algorithm, "kid": key.id}, claims, b"")
        signature = hmac.digest(chance.choice(secrets), head.rstrip(".").encode(), "sha256")
        return Forged(head if algorithm == "none" else head + _encoded(signature), "")

    # What an API server might sign: for others, for other times, of other versions.

    def other_claims(self, chance: random.Random) -> Forged:
        claims = chance.choice(self._agents).claims()
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            self._change(claims, chance)
        key = chance.choice(self._issuer.keys)
        return Forged(self._issuer.sign(claims, key=key), self._session(claims))

    def _change(self, claims: dict[str, Any], chance: random.Random) -> None:
        """Change one claim, at any depth."""
        other = chance.choice(self._agents).claims()
        bound = claims.get("kubernetes.io")
        place: Any = claims
        donor: Any = other
        if chance.random() < 0.2:
            name = chance.choice(("exp", "nbf", "iat"))
            place[name] = self._now() + chance.choice(_SHIFTS)
            return
        if chance.random() < 0.1:
            claims[chance.choice(("iss", "sub"))] = chance.choice(_NAMES)
            return
        if isinstance(bound, dict) and chance.random() < 0.6:
            place, donor = bound, other["kubernetes.io"]
            inner = chance.choice(["serviceaccount", "pod", "node"])
            if isinstance(place.get(inner), dict) and chance.random() < 0.6:
                place, donor = place[inner], donor[inner]
        names = [each for each in donor if each != "jti"]  # an API server always writes one
        name = chance.choice([*names, "unknown", "warnafter", "secret"])
        if chance.random() < 0.3:
            place[name] = donor.get(name, 1)
        elif chance.random() < 0.3:
            place.pop(name, None)
        else:
            place[name] = chance.choice(_VALUES)
        if place.get(name) is None:
            place.pop(name, None)  # to an API server null means the same

    def _session(self, claims: Any) -> str:
        """Return the session of the agent of which the claims say everything that counts."""
        found = [_session(each, claims) for each in self._agents if self._fits(claims, each)]
        return found[0] if found else ""

    def _fits(self, claims: Any, agent: Agent) -> bool:
        wanted = agent.claims()
        bound, of_agent = claims.get("kubernetes.io"), wanted["kubernetes.io"]
        if not isinstance(bound, dict) or claims.get("iss") != wanted["iss"]:
            return False
        audience = claims.get("aud")
        if audience != "sluice" and not (isinstance(audience, list) and "sluice" in audience):
            return False
        times = [claims.get(name) for name in ("exp", "nbf", "iat")]
        if any(isinstance(each, bool) or not isinstance(each, int | float) for each in times):
            return False
        expires, begins, issued = times
        now = self._now()
        if expires + LEEWAY <= now or max(begins, issued) > now + LEEWAY:
            return False
        return (
            claims.get("sub") == f"system:serviceaccount:{NAMESPACE}:{agent.account.name}"
            and bound.get("namespace") == NAMESPACE
            and _is_part(bound.get("serviceaccount"), of_agent["serviceaccount"], whole=True)
            and _is_part(bound.get("pod"), of_agent["pod"], whole=True)
            and _is_part(bound.get("node", {}), of_agent["node"], whole=False)
        )


_FORGERIES: Final[Sequence[Callable[[Forger, random.Random], Forged]]] = (
    Forger.garbage,
    Forger.changed_text,
    Forger.changed_text,
    Forger.other_signature,
    Forger.mixed,
    Forger.other_header,
    Forger.own_key,
    Forger.shared_secret,
    Forger.other_claims,
    Forger.other_claims,
    Forger.other_claims,
)


def _session(agent: Agent, claims: Mapping[str, Any]) -> str:
    """Return the session of an agent, with the node as its token names it."""
    session = agent.session(claims["jti"])
    node = claims["kubernetes.io"].get("node", {}).get("uid", "")
    pod, account, _, token = session.pod_uid.split(":")
    return str(Session(session.identity, ":".join((pod, account, node[:8], token))))


def second_signature(token: str) -> str:
    """Return the same token with the other valid signature, for ES256."""
    head, _, signature = token.rpartition(".")
    raw = _decoded(signature)
    negated = _P256_ORDER - int.from_bytes(raw[32:], "big")
    return f"{head}.{_encoded(raw[:32] + negated.to_bytes(32, 'big'))}"


def _is_part(ref: Any, wanted: Mapping[str, str], *, whole: bool) -> bool:
    """Whether a reference says the same, or nothing else unless it must say all."""
    if not isinstance(ref, dict):
        return False
    return all(
        ref.get(name, "") == value or (not whole and ref.get(name, "") == "")
        for name, value in wanted.items()
    )


def _content(token: str) -> object:
    """Return what is signed and the signature, which has more than one text."""
    head, _, signature = token.rpartition(".")
    try:
        return head, _decoded(signature)
    except ValueError:
        return token


def _header(token: str) -> dict[str, Any]:
    return msgspec.json.decode(_decoded(token.split(".", maxsplit=1)[0]))


def _claims(token: str) -> dict[str, Any]:
    return msgspec.json.decode(_decoded(token.split(".")[1]))


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
