"""nats-server's side of the auth callout: requests as it sends them, answers as it reads them."""

import itertools
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec
from nacl.public import Box, PrivateKey, PublicKey
from nacl.signing import SigningKey, VerifyKey

from libs.bus.callout import CalloutKeys
from libs.bus.keys import KeyKind, decode_public, encode_public
from libs.runtime.clock import Clock

_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}


class Answer(msgspec.Struct, frozen=True):
    """What the server reads: the claims of the admitted user, or why it is refused."""

    user: dict[str, Any]
    error: str


class CalloutServer:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = SigningKey.generate()
        self._curve = PrivateKey.generate()
        self._users = itertools.count(1)
        self.id = encode_public(KeyKind.SERVER, bytes(self._key.verify_key))
        self.xkey = encode_public(KeyKind.CURVE, bytes(self._curve.public_key))

    def ask(
        self,
        keys: CalloutKeys,
        token: str,
        *,
        host: str = "10.0.3.9",
        kind: str = "nats",
        clock_ahead: int = 0,
    ) -> bytes:
        """Return the request for a client that presents this token."""
        user = SigningKey(next(self._users).to_bytes(32, "big")).verify_key
        claims = {
            "aud": "nats-authorization-request",
            "iat": int(self._clock.now()) + clock_ahead,
            "iss": self.id,
            "nats": {
                "server_id": {"id": self.id, "xkey": self.xkey},
                "user_nkey": encode_public(KeyKind.USER, bytes(user)),
                "client_info": {"host": host, "kind": "Client", "type": kind},
                "connect_opts": {"auth_token": token},
                "type": "authorization_request",
                "version": 2,
            },
        }
        head = b".".join(_base64(msgspec.json.encode(each)) for each in (_HEADER, claims))
        jwt = head + b"." + _base64(self._key.sign(head).signature)
        return b"xkv1" + self._box(keys).encrypt(jwt)

    def read(self, keys: CalloutKeys, answer: bytes) -> Answer:
        """Return the content of an answer that these keys encrypted and signed."""
        claims = _verified(keys, self._box(keys).decrypt(answer.removeprefix(b"xkv1")))
        assert claims["aud"] == self.id
        content = claims["nats"]
        user = _verified(keys, content["jwt"].encode()) if "jwt" in content else {}
        return Answer(user, content.get("error", ""))

    def _box(self, keys: CalloutKeys) -> Box:
        return Box(self._curve, PublicKey(decode_public(KeyKind.CURVE, keys.public_xkey)))


def _verified(keys: CalloutKeys, jwt: bytes) -> dict[str, Any]:
    head, _, signature = jwt.rpartition(b".")
    key = VerifyKey(decode_public(KeyKind.ACCOUNT, keys.public_signing))
    key.verify(head, urlsafe_b64decode(signature + b"=="))
    return msgspec.json.decode(urlsafe_b64decode(head.split(b".")[1] + b"=="))


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")
