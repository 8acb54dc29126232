"""NATS's auth callout: read what the server asks about a client, and sign the answer.

Pure except for the random bytes of the encryption. A request is a JWT of the server, encrypted to
our curve key; the answer is a JWT of ours that contains the user's, encrypted to the server's key.
The server accepts every answer that the signing key signed: whoever has it can be any identity.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from typing import Any, Final, Self

import msgspec
from nacl.exceptions import BadSignatureError, CryptoError
from nacl.public import Box, PrivateKey, PublicKey
from nacl.signing import SigningKey, VerifyKey

from libs.bus.keys import (
    KeyKind,
    NotAKey,
    decode_public,
    decode_seed,
    encode_public,
    encode_seed,
)
from libs.bus.permissions import AUTH, account_of, permissions
from libs.contracts.identities import Identity

PLAIN: Final = "nats"
"""The kind of client that is served: TCP with NATS's own protocol."""

MAX_REQUEST: Final = 64 * 1024
"""Bytes of an encrypted request. The server takes 4 KiB from a client, and repeats some of it."""
MAX_TOKEN: Final = 16 * 1024

_AUDIENCE: Final = "nats-authorization-request"
_VERSION: Final = 2
_MAGIC: Final = b"xkv1"
_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}
_SERVERS: Final = 64
"""Servers whose shared secret is remembered; a server has a new curve key after each start."""


class Unreadable(Exception):
    """These keys do not decrypt it, or it is not a request of a server."""


class OtherKey(Unreadable):
    """It is encrypted to none of these keys, or not at all: the server is configured otherwise."""


class TooOld(Exception):
    """The server no longer waits for the answer."""


class SignInRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A client that wants to connect. What the client itself says is not verified yet."""

    server_id: str
    server_xkey: str
    user_key: str
    """The key that the server made for this connection."""
    token: str
    """What the client presented; empty if it presented something else, or nothing."""
    host: str
    kind: str
    """`PLAIN`, or what else it is: "websocket", "mqtt", "leafnode"."""
    issued_at: int
    """Unix seconds by the server's clock."""

    def __repr__(self) -> str:
        return f"SignInRequest({self.kind} client at {self.host}, server {self.server_id})"


class _Server(msgspec.Struct, frozen=True):
    id: str
    xkey: str


class _Client(msgspec.Struct, frozen=True):
    host: str = ""
    kind: str = ""
    type: str = ""


class _Options(msgspec.Struct, frozen=True):
    auth_token: str = ""


class _Request(msgspec.Struct, frozen=True):
    server_id: _Server
    user_nkey: str
    type: str
    version: int
    client_info: _Client = _Client()
    connect_opts: _Options = _Options()


class _Claims(msgspec.Struct, frozen=True):
    aud: str
    iss: str
    iat: int
    nats: _Request


_claims = msgspec.json.Decoder(_Claims)
_header = msgspec.json.Decoder(dict[str, str])


def new_seeds() -> tuple[str, str]:
    """Return the seeds of a new signing key and a new curve key; both are secret."""
    return (
        encode_seed(KeyKind.ACCOUNT, bytes(SigningKey.generate())),
        encode_seed(KeyKind.CURVE, bytes(PrivateKey.generate())),
    )


class CalloutKeys:
    """The key that signs answers and users, and the curve key that encrypts both ways."""

    def __init__(self, *, signing: SigningKey, curve: PrivateKey) -> None:
        self._signing = signing
        self.public_signing: Final = encode_public(KeyKind.ACCOUNT, bytes(signing.verify_key))
        self.public_xkey: Final = encode_public(KeyKind.CURVE, bytes(curve.public_key))

        def box(xkey: str) -> Box:
            return Box(curve, PublicKey(decode_public(KeyKind.CURVE, xkey)))

        self._box = lru_cache(maxsize=_SERVERS)(box)

    @classmethod
    def from_seeds(cls, signing: str, xkey: str) -> Self:
        """Read the seeds of an account key (SA…) and a curve key (SX…), or raise `NotAKey`."""
        return cls(
            signing=SigningKey(decode_seed(KeyKind.ACCOUNT, signing)),
            curve=PrivateKey(decode_seed(KeyKind.CURVE, xkey)),
        )

    def __repr__(self) -> str:
        return f"CalloutKeys({self.public_signing}, {self.public_xkey})"

    def open(self, data: bytes, *, server_xkey: str, now: float, max_age: float) -> SignInRequest:
        """Return the request; raise `Unreadable`, or `TooOld` before the costlier checks.

        The age lies between the server's clock and this one. A request from the future is refused
        beyond the same limit.
        """
        parts = self._decrypt(data, server_xkey).split(b".")
        if len(parts) != 3:
            raise Unreadable(f"it has {len(parts)} parts, not the three of a JWT")
        header, payload, signature = parts
        claims = _decode_claims(payload)
        age = now - claims.iat
        if age > max_age:
            raise TooOld(f"the server sent it {age:.1f} s ago; it is answered within {max_age:g} s")
        if age < -max_age:
            raise Unreadable(
                f"its time is {-age:.1f} s ahead: set the clock of the server or of this machine"
            )
        _verify(header, payload, signature, claims)
        request = claims.nats
        if request.server_id.xkey != server_xkey:
            raise Unreadable("the server's curve key in it is not the one that encrypted it")
        client = request.client_info
        return SignInRequest(
            server_id=request.server_id.id,
            server_xkey=server_xkey,
            user_key=request.user_nkey,
            token=request.connect_opts.auth_token,
            host=client.host,
            kind=client.type if client.kind == "Client" else client.kind.lower(),
            issued_at=claims.iat,
        )

    def grant(
        self, request: SignInRequest, identity: Identity, *, session: str, expires: int
    ) -> bytes:
        """Return the answer that admits the client with the rights of `identity` until `expires`.

        `session` is a name from `libs.bus.sessions`, `expires` in Unix seconds.
        """
        account = account_of(identity.writer)
        if account == AUTH:
            raise ValueError(f"{identity} signs others in; it has a key in the configuration")
        if request.kind != PLAIN:
            raise ValueError(f"a {request.kind or 'nameless'} client cannot be {identity}")
        allowed = permissions(identity)
        user: dict[str, Any] = {
            "type": "user",
            "version": _VERSION,
            "pub": {"allow": allowed.publish},
            "sub": {"allow": allowed.subscribe},
            "subs": -1,
            "data": -1,
            "payload": -1,
        }
        jwt = self._sign(
            request, audience=account, nats=user, more={"name": session, "exp": expires}
        )
        return self._answer(request, {"jwt": jwt})

    def refuse(self, request: SignInRequest, why: str) -> bytes:
        """Return the answer that refuses the client; only the server's log shows `why`."""
        return self._answer(request, {"error": why})

    def _answer(self, request: SignInRequest, content: dict[str, str]) -> bytes:
        body = {"type": "authorization_response", "version": _VERSION, **content}
        jwt = self._sign(request, audience=request.server_id, nats=body, more={})
        return _MAGIC + self._box(request.server_xkey).encrypt(jwt.encode())

    def _sign(
        self, request: SignInRequest, *, audience: str, nats: object, more: dict[str, Any]
    ) -> str:
        claims = {
            "iss": self.public_signing,
            "sub": request.user_key,
            "aud": audience,
            "iat": request.issued_at,
            "nats": nats,
            **more,
        }
        signed = b".".join(_base64(msgspec.json.encode(each)) for each in (_HEADER, claims))
        return b".".join((signed, _base64(self._signing.sign(signed).signature))).decode()

    def _decrypt(self, data: bytes, server_xkey: str) -> bytes:
        if len(data) > MAX_REQUEST:
            raise Unreadable(f"it has {len(data)} bytes; a request has at most {MAX_REQUEST}")
        if not data.startswith(_MAGIC):
            raise OtherKey("it is not encrypted: give the server this process's curve key (`xkey`)")
        try:
            return self._box(server_xkey).decrypt(data[len(_MAGIC) :])
        except NotAKey as error:
            raise Unreadable(f"the server's curve key: {error}") from None
        except (CryptoError, ValueError):
            raise OtherKey(
                "it is encrypted to another curve key: the server and this process have different"
                " ones"
            ) from None


def _decode_claims(payload: bytes) -> _Claims:
    try:
        return _claims.decode(_unbase64(payload))
    except (msgspec.DecodeError, ValueError) as error:
        raise Unreadable(f"its claims: {error}") from None


def _verify(header: bytes, payload: bytes, signature: bytes, claims: _Claims) -> None:
    """Raise `Unreadable` unless the server that it names signed a request of this kind."""
    request = claims.nats
    expected = (_AUDIENCE, "authorization_request", _VERSION, request.server_id.id)
    if (claims.aud, request.type, request.version, claims.iss) != expected:
        raise Unreadable("it is not an authorization request, version 2, of the server it names")
    if len(request.connect_opts.auth_token) > MAX_TOKEN:
        raise Unreadable(f"its token is longer than {MAX_TOKEN} characters")
    try:
        if _header.decode(_unbase64(header)) != _HEADER:
            raise Unreadable("its header does not say that a NATS key signed it")
        decode_public(KeyKind.USER, request.user_nkey)
        key = VerifyKey(decode_public(KeyKind.SERVER, claims.iss))
        key.verify(header + b"." + payload, _unbase64(signature))
    except BadSignatureError:
        raise Unreadable("its signature is wrong") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise Unreadable(str(error)) from None


def _base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _unbase64(text: bytes) -> bytes:
    return urlsafe_b64decode(text + b"=" * (-len(text) % 4))
