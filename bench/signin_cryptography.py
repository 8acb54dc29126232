"""The cryptography that one sign-in cannot do without, alone."""

import statistics
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable

from joserfc import jws
from nacl.public import Box, PrivateKey
from nacl.signing import SigningKey

from libs.runtime.clock import SystemClock
from libs.testing.tokens import Bound, TokenIssuer

ROUNDS = 5
TIMES = 200
REQUEST = 3_000
"""Bytes of a request, and of an answer, about."""


def cryptography_seconds() -> float:
    """Return the CPU time of: decrypt and verify a request, verify a token, sign twice, encrypt."""
    issuer = TokenIssuer(clock=SystemClock(), algorithm="RS256")
    key, token = issuer.keys[0], _token(issuer)
    extracted = jws.extract_compact(token.encode())
    registry = jws.JWSRegistry(algorithms=["RS256"])
    ours, theirs = PrivateKey.generate(), PrivateKey.generate()
    box = Box(ours, theirs.public_key)
    signing = SigningKey.generate()
    text = urlsafe_b64encode(bytes(REQUEST * 3 // 4))
    signature = signing.sign(text).signature
    sealed = bytes(box.encrypt(text))

    def once() -> None:
        box.decrypt(sealed)
        signing.verify_key.verify(text, signature)
        jws.validate_compact(extracted, key.private, registry=registry)
        signing.sign(text)
        signing.sign(text)
        box.encrypt(text)

    return statistics.median(_measure(once) for _ in range(ROUNDS))


def _token(issuer: TokenIssuer) -> str:
    bound = Bound("sluice-driver", "aaaaaaaa-0000-4000-8000-000000000001")
    return issuer.sign(
        issuer.claims(namespace="gpu-operator", account=bound, pod=bound, node=bound)
    )


def _measure(action: Callable[[], None]) -> float:
    began = time.thread_time()
    for _ in range(TIMES):
        action()
    return (time.thread_time() - began) / TIMES
