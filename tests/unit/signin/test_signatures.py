"""Signatures: which keys and algorithms are accepted, and every forgery that is refused."""

import hmac
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.testing.tokens import Algorithm, SigningKey, TokenIssuer, assemble
from services.signin.claims import Cause, Holder, Refused
from services.signin.signatures import MAX_TOKEN, NoKeys, UnknownKey, parse_keys, verify
from tests.unit.signin.tokens import CLOCK, TOKENS, agent_claims, judge

RSA = TokenIssuer(clock=CLOCK, algorithm="RS256")


def cause_of(token: str, tokens: TokenIssuer = TOKENS) -> Cause:
    found = judge(token, tokens=tokens)
    assert isinstance(found, Refused), found
    return found.cause


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "ES384"])
def test_signatures_of_an_api_server_are_valid(algorithm: Algorithm) -> None:
    tokens = TokenIssuer(clock=CLOCK, algorithm=algorithm)
    assert isinstance(judge(tokens.sign(agent_claims()), tokens=tokens), Holder)
    tokens.rotate()
    old = tokens.keys[1]
    assert isinstance(judge(tokens.sign(agent_claims(), key=old), tokens=tokens), Holder)


def test_a_token_without_a_signature_is_refused() -> None:
    for name in ("none", "None", "NONE"):
        header = {"alg": name, "kid": TOKENS.keys[0].id}
        assert cause_of(assemble(header, agent_claims(), b"")) is Cause.ALGORITHM


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_public_key_that_is_used_as_a_password_is_refused(algorithm: str) -> None:
    """A verifier that takes the algorithm from the token would accept this."""
    for secret in (RSA.keys[0].public_pem(), RSA.jwks()):
        header = {"alg": algorithm, "kid": RSA.keys[0].id}
        unsigned = assemble(header, agent_claims(), b"").rstrip(".")
        digest = hmac.new(secret, unsigned.encode(), algorithm.replace("HS", "sha")).digest()
        assert cause_of(assemble(header, agent_claims(), digest), RSA) is Cause.ALGORITHM


def test_a_key_is_for_one_algorithm() -> None:
    for algorithm in ("RS256", "ES384"):
        header = {"alg": algorithm, "kid": TOKENS.keys[0].id}
        assert cause_of(assemble(header, agent_claims(), b"x" * 64)) is Cause.ALGORITHM


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256", "ES512", "EdDSA", "ES256K", ""])
def test_other_algorithms_are_refused(algorithm: str) -> None:
    header = {"alg": algorithm, "kid": TOKENS.keys[0].id}
    assert cause_of(assemble(header, agent_claims(), b"x" * 64)) is Cause.ALGORITHM


def test_the_key_of_another_issuer_signs_nothing() -> None:
    other = TokenIssuer(clock=CLOCK)
    assert judge(other.sign(agent_claims())) == UnknownKey(other.keys[0].id)
    other.keys[0].id = TOKENS.keys[0].id
    assert cause_of(other.sign(agent_claims())) is Cause.SIGNATURE


def test_changed_claims_break_the_signature() -> None:
    head, payload, signature = TOKENS.sign(agent_claims("telemetry")).split(".")
    _, driver, _ = TOKENS.sign(agent_claims("driver")).split(".")
    assert payload != driver
    assert cause_of(f"{head}.{driver}.{signature}") is Cause.SIGNATURE


@pytest.mark.parametrize(
    "extra",
    [
        {"crit": ["b64"], "b64": False},
        {"jwk": SigningKey("ES256").jwk()},
        {"jku": "https://attacker.example/keys"},
        {"x5c": ["MIIB"]},
    ],
)
def test_a_header_brings_no_keys_and_no_extensions(extra: dict[str, object]) -> None:
    header = {"alg": "ES256", "kid": TOKENS.keys[0].id, **extra}
    assert cause_of(assemble(header, agent_claims(), b"x" * 64)) is Cause.MALFORMED


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "..",
        "a.b.c.d",
        "e30.e30.e30",
        "WzFd.e30.e30",
        "é.é.é",
        f"{'W' * 600}.e30.e30",
        "x" * (1 << 20),
        f"{'eyJ' * 4000}.{'eyJ' * 4000}.",
    ],
)
def test_what_is_no_token(token: str) -> None:
    found = judge(token)
    assert isinstance(found, Refused)
    assert found.cause is Cause.MALFORMED
    assert len(found.reason) < 250


def test_a_token_is_bounded() -> None:
    padding = "x" * (MAX_TOKEN * 3 // 4)
    token = TOKENS.sign(agent_claims(padding=padding))
    found = judge(token)
    assert isinstance(found, Refused)
    assert found.reason == f"the token has {len(token)} bytes: at most 16384 are read"


def test_a_token_names_its_key() -> None:
    found = judge(assemble({"alg": "ES256"}, agent_claims(), b"x" * 64))
    assert isinstance(found, Refused)
    assert found.reason == "the token does not name the key that signed it"


@given(st.text(max_size=80), st.binary(max_size=80))
def test_any_text_is_judged(text: str, raw: bytes) -> None:
    keys = parse_keys(TOKENS.jwks())
    assert isinstance(verify(text, keys), Refused)
    token = assemble({"alg": "ES256", "kid": TOKENS.keys[0].id}, agent_claims(), raw)
    assert isinstance(verify(token, keys), Refused)


def document(*keys: Mapping[str, object]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def test_unusable_keys_are_left_out() -> None:
    good = SigningKey("RS256")
    symmetric = {"kty": "oct", "kid": "s", "k": "c2VjcmV0", "alg": "HS256"}
    small = good.jwk()["n"][:171]
    listed = [
        symmetric,
        {**good.jwk(), "kid": "1024 bits", "n": small},
        {**good.jwk(), "kid": "encrypts", "use": "enc"},
        {**good.jwk(), "kid": "pss", "alg": "PS256"},
        {**good.jwk(), "kid": ""},
        {"kty": "EC", "kid": "point", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "quantum", "kid": "new"},
        good.jwk(),
    ]
    assert set(parse_keys(document(*listed))) == {good.id}


def test_a_key_without_an_algorithm_is_for_that_of_its_type() -> None:
    curves = {algorithm: SigningKey(algorithm).jwk() for algorithm in ("RS256", "ES256", "ES384")}
    keys = parse_keys(document(*({**jwk, "kid": name, "alg": ""} for name, jwk in curves.items())))
    assert {name: key.algorithm for name, key in keys.items()} == {name: name for name in curves}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a set"),
        (b"<html>", "not a set"),
        (b'{"keys": 1}', "not a set"),
        (b'{"keys": []}', "it is empty"),
        (document({"kty": "oct", "kid": "s"}), "key 's' is for 'oct', not for RS256, ES256, ES384"),
    ],
)
def test_a_document_without_keys_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(NoKeys, match=why):
        parse_keys(data)
