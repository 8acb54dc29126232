"""Requests of the server are checked, and answers are as it expects: without a server."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec
import pytest
from nacl.public import Box, PrivateKey, PublicKey
from nacl.signing import SigningKey, VerifyKey

from libs.bus.callout import (
    MAX_REQUEST,
    MAX_TOKEN,
    CalloutKeys,
    SignInRequest,
    TooOld,
    Unreadable,
)
from libs.bus.keys import (
    KeyKind,
    NotAKey,
    decode_public,
    encode_public,
    encode_seed,
)
from libs.bus.permissions import permissions
from libs.bus.sessions import session_name
from libs.contracts.identities import Identity, Writer

NOW = 1_795_415_949
MAX_AGE = 9.0
SIGNING = encode_seed(KeyKind.ACCOUNT, b"s" * 32)
XKEY = encode_seed(KeyKind.CURVE, b"x" * 32)
KEYS = CalloutKeys.from_seeds(SIGNING, XKEY)
SERVER = SigningKey(b"n" * 32)
SERVER_ID = encode_public(KeyKind.SERVER, bytes(SERVER.verify_key))
SERVER_CURVE = PrivateKey(b"c" * 32)
SERVER_XKEY = encode_public(KeyKind.CURVE, bytes(SERVER_CURVE.public_key))
USER_KEY = encode_public(KeyKind.USER, bytes(SigningKey(b"u" * 32).verify_key))
HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
DRIVER = Identity(writer=Writer.DRIVER, node="gpu-1.example")


def box(public: str = KEYS.public_xkey) -> Box:
    return Box(SERVER_CURVE, PublicKey(decode_public(KeyKind.CURVE, public)))


def base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def signed(claims: Any, *, header: Any = HEADER, by: SigningKey = SERVER) -> bytes:
    head = b".".join(base64(msgspec.json.encode(each)) for each in (header, claims))
    return head + b"." + base64(by.sign(head).signature)


def sealed(jwt: bytes) -> bytes:
    return b"xkv1" + box().encrypt(jwt)


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a request as nats-server 2.15.1 sends them."""
    request = {
        "server_id": {
            "name": "nats-0",
            "host": "10.0.0.7",
            "id": SERVER_ID,
            "version": "2.15.1",
            "cluster": "sluice",
            "xkey": SERVER_XKEY,
        },
        "user_nkey": USER_KEY,
        "client_info": {
            "host": "10.0.3.9",
            "id": 9,
            "user": "[REDACTED]",
            "name": str(DRIVER),
            "kind": "Client",
            "type": "nats",
        },
        "connect_opts": {
            "auth_token": "a.b.c",
            "name": str(DRIVER),
            "lang": "python3",
            "version": "2.16.0",
            "protocol": 1,
        },
        "type": "authorization_request",
        "version": 2,
    }
    return {
        "aud": "nats-authorization-request",
        "exp": NOW + 10,
        "jti": "DQIOEX2K3T5IRHKDN6YHM2ZNCYG6QDPFQMDOUYCIO32JC4QP5OLQ",
        "iat": NOW,
        "iss": SERVER_ID,
        "sub": "ABJPGB3DJFLPIVOSFGB6NB4WE2NFX2IO6X7AQDPNUHYHLLVDDRHZ4KK3",
        "nats": request | changes.pop("nats", {}),
        **changes,
    }


def opened(data: bytes, *, now: float = NOW + 1, server_xkey: str = SERVER_XKEY) -> SignInRequest:
    return KEYS.open(data, server_xkey=server_xkey, now=now, max_age=MAX_AGE)


def request() -> SignInRequest:
    return opened(sealed(signed(claims())))


def answered(answer: bytes) -> dict[str, Any]:
    """Return the claims of an answer, read as the server reads it."""
    assert answer.startswith(b"xkv1")
    return verified(box().decrypt(answer[4:]))


def verified(jwt: bytes) -> dict[str, Any]:
    head, _, signature = jwt.rpartition(b".")
    key = VerifyKey(decode_public(KeyKind.ACCOUNT, KEYS.public_signing))
    key.verify(head, urlsafe_b64decode(signature + b"=="))
    header, payload = (
        msgspec.json.decode(urlsafe_b64decode(each + b"==")) for each in head.split(b".")
    )
    assert header == HEADER
    return payload


def test_a_request_is_read() -> None:
    assert request() == SignInRequest(
        server_id=SERVER_ID,
        server_xkey=SERVER_XKEY,
        user_key=USER_KEY,
        token="a.b.c",
        host="10.0.3.9",
        kind="nats",
        issued_at=NOW,
    )


def test_neither_seeds_nor_tokens_are_printed() -> None:
    assert f"{KEYS!r}" == f"CalloutKeys({KEYS.public_signing}, {KEYS.public_xkey})"
    assert KEYS.public_signing.startswith("A")
    assert KEYS.public_xkey.startswith("X")
    assert "a.b.c" not in f"{request()!r} {request()}"


@pytest.mark.parametrize(
    "seeds",
    [(XKEY, SIGNING), (SIGNING, ""), (SIGNING, KEYS.public_xkey), (SIGNING, f"{XKEY[:-1]}A")],
)
def test_other_texts_are_no_seeds(seeds: tuple[str, str]) -> None:
    with pytest.raises(NotAKey) as raised:
        CalloutKeys.from_seeds(*seeds)
    assert not [seed for seed in seeds if seed and seed in str(raised.value)]


@pytest.mark.parametrize(
    ("client", "kind"),
    [
        ({"kind": "Client", "type": "nats"}, "nats"),
        ({"kind": "Client", "type": "websocket"}, "websocket"),
        ({"kind": "Client", "type": "mqtt"}, "mqtt"),
        ({"kind": "Leafnode"}, "leafnode"),
        ({}, ""),
    ],
)
def test_only_plain_clients_are_admitted(client: dict[str, str], kind: str) -> None:
    read = opened(sealed(signed(claims(nats={"client_info": client}))))
    assert read.kind == kind
    if kind == "nats":
        KEYS.grant(read, DRIVER, session="s", expires=NOW + 60)
    else:
        with pytest.raises(ValueError, match=r"cannot be default/gpu-1\.example/driver"):
            KEYS.grant(read, DRIVER, session="s", expires=NOW + 60)


def test_a_client_may_present_nothing() -> None:
    assert opened(sealed(signed(claims(nats={"connect_opts": {"user": "u"}})))).token == ""


def changed(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


MALFORMED = {
    "nothing": b"",
    "too much": b"xkv1" + bytes(MAX_REQUEST),
    "not encrypted": signed(claims()),
    "encrypted to another key": b"xkv1"
    + Box(SERVER_CURVE, PrivateKey(b"o" * 32).public_key).encrypt(signed(claims())),
    "less than a nonce": b"xkv1" + bytes(10),
    "changed on the way": changed(sealed(signed(claims()))),
    "no JWT": sealed(b"hello"),
    "two parts": sealed(signed(claims()).rpartition(b".")[0]),
    "not base64": sealed(b"a.b.c"),
    "not UTF-8": sealed(b".".join((base64(b"{}"), base64(b'{"aud":"\xff"}'), b""))),
    "no claims": sealed(signed({})),
    "a list": sealed(signed([])),
    "a time that is a text": sealed(signed(claims(iat="now"))),
    "another audience": sealed(signed(claims(aud="NODES"))),
    "another type": sealed(signed(claims(nats={"type": "user"}))),
    "another version": sealed(signed(claims(nats={"version": 1}))),
    "of another server": sealed(
        signed(claims(nats={"server_id": {"id": USER_KEY, "xkey": SERVER_XKEY}}))
    ),
    "of a server without a key": sealed(
        signed(claims(iss="N", nats={"server_id": {"id": "N", "xkey": SERVER_XKEY}}))
    ),
    "with another curve key": sealed(
        signed(claims(nats={"server_id": {"id": SERVER_ID, "xkey": KEYS.public_xkey}}))
    ),
    "a user's key that is none": sealed(signed(claims(nats={"user_nkey": SERVER_ID}))),
    "a large token": sealed(
        signed(claims(nats={"connect_opts": {"auth_token": "t" * (MAX_TOKEN + 1)}}))
    ),
    "signed by another": sealed(signed(claims(), by=SigningKey(b"o" * 32))),
    "not signed": sealed(signed(claims()).rpartition(b".")[0] + b"."),
    "a signature of another kind": sealed(signed(claims(), header=HEADER | {"alg": "none"})),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable) as raised:
        opened(data)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    "key", ["", SERVER_ID, encode_public(KeyKind.CURVE, bytes(32)), SERVER_XKEY.lower()]
)
def test_a_curve_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(Unreadable):
        opened(sealed(signed(claims())), server_xkey=key)


@pytest.mark.parametrize("late", [MAX_AGE + 0.1, 60.0])
def test_an_old_request_is_refused_before_its_signature_is_verified(late: float) -> None:
    forged = sealed(signed(claims(), by=SigningKey(b"o" * 32)))
    with pytest.raises(TooOld, match=r"ago; it is answered within 9 s"):
        opened(forged, now=NOW + late)


def test_the_limits_of_a_requests_age_belong_to_it() -> None:
    data = sealed(signed(claims()))
    assert opened(data, now=NOW + MAX_AGE) == opened(data, now=NOW - MAX_AGE) == request()


def test_a_request_from_the_future_is_refused() -> None:
    with pytest.raises(Unreadable, match="ahead: set the clock"):
        opened(sealed(signed(claims())), now=NOW - MAX_AGE - 1)


def test_a_refusal_tells_the_server_why() -> None:
    assert answered(KEYS.refuse(request(), "no token")) == {
        "iss": KEYS.public_signing,
        "sub": USER_KEY,
        "aud": SERVER_ID,
        "iat": NOW,
        "nats": {"type": "authorization_response", "version": 2, "error": "no token"},
    }


@pytest.mark.parametrize(
    ("identity", "account"),
    [
        (DRIVER, "NODES"),
        (Identity(writer=Writer.SCHEDULER), "SERVICES"),
        (Identity(writer=Writer.CTL), "SERVICES"),
    ],
    ids=str,
)
def test_a_grant_has_the_identitys_rights(identity: Identity, account: str) -> None:
    session = session_name(identity, "uid")

    answer = answered(KEYS.grant(request(), identity, session=session, expires=NOW + 3600))

    assert (answer["aud"], answer["sub"]) == (SERVER_ID, USER_KEY)
    assert list(answer["nats"]) == ["type", "version", "jwt"]
    allowed = permissions(identity)
    assert verified(answer["nats"]["jwt"].encode()) == {
        "iss": KEYS.public_signing,
        "sub": USER_KEY,
        "aud": account,
        "iat": NOW,
        "nats": {
            "type": "user",
            "version": 2,
            "pub": {"allow": list(allowed.publish)},
            "sub": {"allow": list(allowed.subscribe)},
            "subs": -1,
            "data": -1,
            "payload": -1,
        },
        "name": session,
        "exp": NOW + 3600,
    }


def test_nobody_is_admitted_to_the_account_of_sign_in() -> None:
    with pytest.raises(ValueError, match="it has a key in the configuration"):
        KEYS.grant(request(), Identity(writer=Writer.SIGN_IN), session="s", expires=NOW + 60)
