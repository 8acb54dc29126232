"""An issuer of ServiceAccount tokens, with the claims that an API server writes.

Every claim and header can be overridden, so that a test forges what an attacker could.
"""

import base64
import json
import uuid
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from libs.runtime.clock import Clock

ISSUER = "https://kubernetes.default.svc.cluster.local"
Algorithm = Literal["RS256", "ES256", "ES384"]
_CURVES = {"ES256": "P-256", "ES384": "P-384"}


class Bound(msgspec.Struct, frozen=True):
    """An object that a token is bound to."""

    name: str
    uid: str


class SigningKey:
    """A private key of an API server."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        curve: Any = _CURVES.get(algorithm)
        self.private: RSAKey | ECKey = (
            ECKey.generate_key(curve) if curve else RSAKey.generate_key(2048)
        )
        self.id = self.private.thumbprint()

    def jwk(self) -> dict[str, Any]:
        """Return the public key as an API server publishes it."""
        public = dict(self.private.as_dict(private=False))
        return {**public, "use": "sig", "alg": self.algorithm, "kid": self.id}

    def public_pem(self) -> bytes:
        return self.private.as_pem(private=False)


class TokenIssuer:
    """Signs tokens with the first of its keys, and publishes all."""

    def __init__(
        self, *, clock: Clock, issuer: str = ISSUER, algorithm: Algorithm = "ES256"
    ) -> None:
        self.issuer = issuer
        self.keys = [SigningKey(algorithm)]
        self._clock = clock

    def rotate(self, algorithm: Algorithm = "ES256") -> None:
        """Sign with a new key from now on, and still publish the old ones."""
        self.keys.insert(0, SigningKey(algorithm))

    def jwks(self) -> bytes:
        return json.dumps({"keys": [key.jwk() for key in self.keys]}).encode()

    def claims(
        self,
        *,
        namespace: str,
        account: Bound,
        pod: Bound | None = None,
        node: Bound | None = None,
        audiences: tuple[str, ...] = ("sluice",),
        seconds: int = 3600,
    ) -> dict[str, Any]:
        """Return the claims of a new token."""
        now = int(self._clock.now())
        bound: dict[str, Any] = {"namespace": namespace}
        named = {"node": node, "pod": pod, "serviceaccount": account}
        bound |= {key: _ref(each) for key, each in named.items() if each is not None}
        return {
            "aud": list(audiences),
            "exp": now + seconds,
            "iat": now,
            "iss": self.issuer,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": bound,
            "nbf": now,
            "sub": f"system:serviceaccount:{namespace}:{account.name}",
        }

    def sign(self, claims: Mapping[str, Any], *, key: SigningKey | None = None) -> str:
        """Return a token with these claims."""
        key = key or self.keys[0]
        header = {"alg": key.algorithm, "kid": key.id}
        return jws.serialize_compact(
            header, json.dumps(claims), key.private, algorithms=[key.algorithm]
        )

    def verified(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a token that one of the keys signed; None for any other text."""
        for key in self.keys:
            try:
                signed = jws.deserialize_compact(token, key.private, algorithms=[key.algorithm])
                return json.loads(signed.payload)
            except (JoseError, ValueError):
                continue
        return None


def assemble(header: Mapping[str, Any], claims: Mapping[str, Any], signature: bytes) -> str:
    """Return a token of any parts, without a check."""
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def _ref(bound: Bound) -> dict[str, str]:
    return {"name": bound.name, **({"uid": bound.uid} if bound.uid else {})}
