"""Attack sign-in with random tokens and requests, and hold every answer against what is due.

`fuzz_signin` may run for long; the test in `test_fuzz_signin` runs it with a few cases. Everything
runs in virtual time.
"""

import gc
import random
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import structlog
from nacl.signing import SigningKey

from libs.bus.callout import CalloutKeys, new_seeds
from libs.bus.keys import KeyKind, encode_public
from libs.contracts import subjects
from tests.security.fuzz_tokens import Forged, Forger
from tests.unit.signin.callout_server import CalloutServer
from tests.unit.signin.world import World

BATCH: Final = 50
SETTLE: Final = 12.0
"""Seconds in which every request of a batch is answered or dropped."""
BLOCKS: Final = 1_000
"""Blocks of memory that may stay, beside one for each case: digests of tokens, up to a limit."""
HOSTS: Final = 64
LONGEST_LINE: Final = 1_500
_KINDS: Final = ("websocket", "mqtt", "leafnode", "", "Leafnode", "nats ")
_VALUES: Final[Sequence[Any]] = (
    *(None, "", 0, -1, 2**64, 1e308, True, [], {}, "x" * 5_000, "\x00", [[[]]], ["x"] * 99),
)
_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}


class Asked(NamedTuple):
    """A request, and the session that it may open at most."""

    data: bytes
    xkey: str
    session: str
    is_genuine: bool
    """Whether it must be granted."""


class HostileServer(CalloutServer):
    """A server of NATS that asks about anything, also as no server would."""

    def claims(self, token: object, *, host: str) -> dict[str, Any]:
        user = SigningKey(next(self._users).to_bytes(32, "big")).verify_key
        return {
            "aud": "nats-authorization-request",
            "iat": int(self._clock.now()),
            "iss": self.id,
            "nats": {
                "server_id": {"id": self.id, "xkey": self.xkey},
                "user_nkey": encode_public(KeyKind.USER, bytes(user)),
                "client_info": {"host": host, "kind": "Client", "type": "nats"},
                "connect_opts": {"auth_token": token},
                "type": "authorization_request",
                "version": 2,
            },
        }

    def sign(
        self, claims: object, *, key: SigningKey | None = None, header: object = None
    ) -> bytes:
        parts = (header or _HEADER, claims)
        head = b".".join(_encoded(msgspec.json.encode(each)) for each in parts)
        return head + b"." + _encoded((key or self._key).sign(head).signature)

    def seal(self, keys: CalloutKeys, jwt: bytes) -> bytes:
        return b"xkv1" + self._box(keys).encrypt(jwt)


class Attacker:
    def __init__(self, world: World, forger: Forger, chance: random.Random) -> None:
        self._keys = world.keys
        self._server = HostileServer(world.clock)
        self._other = HostileServer(world.clock)
        self._strangers = CalloutKeys.from_seeds(*new_seeds())
        self._forger = forger
        self._chance = chance

    def ask(self) -> Asked:
        """Return a random request: mostly a genuine one about a forged token."""
        chance = self._chance
        number = chance.random()
        if number < 0.1:
            return self._about(self._forger.genuine(chance), is_genuine=True)
        if number < 0.7:
            return self._about(self._forger.forged(chance), is_genuine=False)
        genuine = self._forger.genuine(chance)
        return chance.choice(_CHANGES)(self, genuine)

    def read(self, data: bytes) -> str:
        """Return the name of the session that an answer opens; empty if it refuses."""
        answer = self._server.read(self._keys, data)
        assert bool(answer.user) != bool(answer.error)
        return answer.user.get("name", "")

    def _about(self, forged: Forged, *, is_genuine: bool) -> Asked:
        claims = self._server.claims(forged.token, host=self._host())
        return self._sealed(self._server.sign(claims), forged.session, is_genuine=is_genuine)

    def _sealed(self, jwt: bytes, session: str, *, is_genuine: bool = False) -> Asked:
        data = self._server.seal(self._keys, jwt)
        return Asked(data, self._server.xkey, session, is_genuine)

    def _host(self) -> str:
        return f"10.0.0.{self._chance.randrange(HOSTS)}"

    def _genuine(self, forged: Forged) -> bytes:
        return self._server.sign(self._server.claims(forged.token, host=self._host()))

    # Changed requests about genuine tokens.

    def random_bytes(self, _forged: Forged) -> Asked:
        data = self._chance.randbytes(self._chance.choice((0, 3, 4, 40, 3_000, 70_000)))
        data = data if self._chance.random() < 0.5 else b"xkv1" + data
        return Asked(data, self._server.xkey, "", is_genuine=False)

    def changed_bytes(self, forged: Forged) -> Asked:
        data = bytearray(self._server.seal(self._keys, self._genuine(forged)))
        for _ in range(self._chance.randrange(1, 4)):
            data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        cut = len(data) if self._chance.random() < 0.5 else self._chance.randrange(len(data))
        return Asked(bytes(data[:cut]), self._server.xkey, "", is_genuine=False)

    def other_xkey(self, forged: Forged) -> Asked:
        data = self._server.seal(self._keys, self._genuine(forged))
        xkeys = (self._other.xkey, "", "X" * 56, self._server.id, "\x00", self._keys.public_xkey)
        return Asked(data, self._chance.choice(xkeys), "", is_genuine=False)

    def other_keys(self, forged: Forged) -> Asked:
        data = self._server.seal(self._strangers, self._genuine(forged))
        return Asked(data, self._server.xkey, "", is_genuine=False)

    def not_encrypted(self, forged: Forged) -> Asked:
        return Asked(self._genuine(forged), self._server.xkey, "", is_genuine=False)

    def changed_jwt(self, forged: Forged) -> Asked:
        """Change the text of the server's JWT; its signature stays."""
        head, _, signature = self._genuine(forged).rpartition(b".")
        changed = bytearray(head)
        changed[self._chance.randrange(len(changed))] ^= 1 << self._chance.randrange(7)
        return self._sealed(bytes(changed) + b"." + signature, "")

    def signed_by_another(self, forged: Forged) -> Asked:
        claims = self._server.claims(forged.token, host=self._host())
        return self._sealed(self._server.sign(claims, key=SigningKey.generate()), "")

    def of_another(self, forged: Forged) -> Asked:
        """Another server signs, but this one encrypts."""
        claims = self._other.claims(forged.token, host=self._host())
        return self._sealed(self._other.sign(claims), "")

    def other_header(self, forged: Forged) -> Asked:
        header = {**_HEADER, self._chance.choice(("alg", "typ", "kid")): self._other.id}
        claims = self._server.claims(forged.token, host=self._host())
        return self._sealed(self._server.sign(claims, header=header), "")

    def other_kind(self, forged: Forged) -> Asked:
        claims = self._server.claims(forged.token, host=self._host())
        info = claims["nats"]["client_info"]
        info[self._chance.choice(("kind", "type"))] = self._chance.choice(_KINDS)
        return self._sealed(self._server.sign(claims), "")

    def other_time(self, forged: Forged) -> Asked:
        claims = self._server.claims(forged.token, host=self._host())
        claims["iat"] += self._chance.choice((-3_600, -30, -11, 11, 30, 3_600))
        return self._sealed(self._server.sign(claims), "")

    def other_claim(self, forged: Forged) -> Asked:
        """Replace a claim on which the answer depends."""
        claims = self._server.claims(forged.token, host=self._host())
        request = claims["nats"]
        place, name = self._chance.choice(
            (
                *((claims, name) for name in ("aud", "iat", "iss", "nats")),
                *((request, name) for name in ("server_id", "user_nkey", "type", "version")),
                *((request["server_id"], name) for name in ("id", "xkey")),
                (request["connect_opts"], "auth_token"),
            )
        )
        place[name] = self._chance.choice(_VALUES)
        return self._sealed(self._server.sign(claims), "")

    def unknown_claims(self, forged: Forged) -> Asked:
        """Add what a later version of the server may say."""
        claims = self._server.claims(forged.token, host=self._host())
        claims["nats"] |= {"client_tls": self._chance.choice(_VALUES), "later": [{}]}
        return self._sealed(self._server.sign(claims), forged.session, is_genuine=True)


_CHANGES: Final[Sequence[Callable[[Attacker, Forged], Asked]]] = (
    Attacker.random_bytes,
    Attacker.changed_bytes,
    Attacker.other_xkey,
    Attacker.other_keys,
    Attacker.not_encrypted,
    Attacker.changed_jwt,
    Attacker.signed_by_another,
    Attacker.of_another,
    Attacker.other_header,
    Attacker.other_kind,
    Attacker.other_time,
    Attacker.other_claim,
    Attacker.unknown_claims,
)


async def fuzz_signin(world: World, *, cases: int, seed: int = 0) -> None:
    """Ask this often; raise `AssertionError` for a wrong answer, a failure, or growing memory."""
    agents = [await world.agent("driver", "gpu-1"), await world.agent("validator", "gpu-2")]
    world.server.issuer.rotate("RS256")
    await world.settled()
    forger = Forger(world.server.issuer, agents, world.clock.now)
    chance = random.Random(f"sign-in {seed}")
    attacker = Attacker(world, forger, chance)
    blocks, half = 0, max(1, cases // BATCH // 2)
    for number in range(max(1, cases // BATCH)):
        if number == half:
            blocks = _blocks()
        await _batch(world, attacker)
    failed = world.value("dropped_total", reason="failed")
    assert failed == 0, f"{failed:.0f} requests raised an error"
    grown = _blocks() - blocks
    assert grown < cases / 2 + BLOCKS, f"{grown} blocks of memory in {cases / 2:.0f} cases"


def answers_to(number: int) -> str:
    return subjects.SIGN_IN_ANSWERS.replace(">", str(number))


async def _batch(world: World, attacker: Attacker) -> None:
    asked = {answers_to(number): attacker.ask() for number in range(BATCH)}
    with structlog.testing.capture_logs() as lines:  # not kept, unlike those of the whole run
        for reply, each in asked.items():
            world.parts.responder.received(each.data, each.xkey, reply)
        await world.clock.sleep(SETTLE)
    longest = max((len(str(line)) for line in lines), default=0)
    assert longest <= LONGEST_LINE, f"a line of {longest} characters in the log"
    answers, world.answers = world.answers, {}
    for reply, each in asked.items():
        granted = attacker.read(answers[reply]) if reply in answers else ""
        assert granted in ("", each.session), f"{granted} instead of {each.session or 'nobody'}"
        assert granted or not each.is_genuine, f"{each.session} was refused"


def _blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def _encoded(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
