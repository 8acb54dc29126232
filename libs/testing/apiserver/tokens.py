"""Tokens of ServiceAccounts: their request, their review, and the public keys.

These are answered beside the objects: nothing is stored.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from libs.kube.requests import Request
from libs.kube.views import format_time
from libs.runtime.clock import Clock
from libs.testing.apiserver.bodies import parse_json
from libs.testing.apiserver.kinds.kind import ResourceKind, ResourceKinds
from libs.testing.apiserver.kinds.status_errors import (
    bad_request,
    invalid_request,
    method_not_allowed,
    not_found,
)
from libs.testing.apiserver.objects.json import decoded, encoded, get_map
from libs.testing.apiserver.replies import Reply
from libs.testing.apiserver.status import Cause, StatusError, invalid
from libs.testing.apiserver.store import Store, StoredObject
from libs.testing.tokens import Bound, TokenIssuer

CONFIGURATION = "/.well-known/openid-configuration"
JWKS = "/openid/v1/jwks"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
TOKEN_REQUEST, TOKEN_REVIEW = "TokenRequest", "TokenReview"
_GROUP = "authentication.k8s.io"
_JWKS_TYPE = "application/jwk-set+json"
_LEEWAY = 60.0
_SECONDS = (600, 1 << 32)
_PUBLIC = {"cache-control": "public, max-age=3600"}


class TokenCall(msgspec.Struct, frozen=True, kw_only=True):
    """One of the requests that this module answers."""

    kind: str
    """Empty for the two public documents."""
    namespace: str = ""
    account: str = ""


def token_call(path: str) -> TokenCall | None:
    """Return what a path stands for, if it is one of this module."""
    if path in (CONFIGURATION, JWKS):
        return TokenCall(kind="")
    if path == REVIEWS:
        return TokenCall(kind=TOKEN_REVIEW)
    match path.split("/"):
        case ["", "api", "v1", "namespaces", namespace, "serviceaccounts", account, "token"]:
            return TokenCall(kind=TOKEN_REQUEST, namespace=namespace, account=account)
        case _:
            return None


class TokenEndpoints:
    def __init__(
        self, store: Store, kinds: ResourceKinds, *, issuer: TokenIssuer, clock: Clock
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._issuer = issuer
        self._clock = clock

    async def answer(self, call: TokenCall, request: Request) -> Reply:
        if not call.kind:
            return self._document(request)
        if request.method != "POST":
            raise method_not_allowed()
        body: dict[str, Any] = parse_json(request.body)
        return self._review(body) if call.kind == TOKEN_REVIEW else self._request(call, body)

    # Public documents.

    def _document(self, request: Request) -> Reply:
        if request.method != "GET":
            raise method_not_allowed()
        if request.path == JWKS:
            _require_accepted(request, _JWKS_TYPE)
            return Reply(200, self._issuer.jwks(), content_type=_JWKS_TYPE, headers=_PUBLIC)
        _require_accepted(request, "application/json")
        document = {
            "issuer": self._issuer.issuer,
            "jwks_uri": f"{self._issuer.issuer}{JWKS}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted(
                {key.algorithm for key in self._issuer.keys}
            ),
        }
        return Reply(200, encoded(document), headers=_PUBLIC)

    # Requests of tokens.

    def _request(self, call: TokenCall, body: Mapping[str, Any]) -> Reply:
        spec = get_map(body, "spec")
        seconds: int = spec.get("expirationSeconds") or 3600
        causes = _duration_causes(seconds)
        if causes:
            raise invalid_request(
                TOKEN_REQUEST, "", causes, group=_GROUP, qualified=f"{TOKEN_REQUEST}.{_GROUP}"
            )
        account = self._stored("serviceaccounts", call.account, call.namespace)
        audiences = spec.get("audiences") or [self._issuer.issuer]
        ref = spec.get("boundObjectRef")
        pod, node = self._bound(call, ref) if ref else (None, None)
        claims = self._issuer.claims(
            namespace=call.namespace,
            account=Bound(account.name, account.uid),
            pod=pod,
            node=node,
            audiences=tuple(audiences),
            seconds=seconds,
        )
        answer = {
            "kind": TOKEN_REQUEST,
            "apiVersion": f"{_GROUP}/v1",
            "metadata": {
                "name": account.name,
                "namespace": call.namespace,
                "uid": account.uid,
                "creationTimestamp": format_time(claims["iat"]),
            },
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": ref},
            "status": {
                "token": self._issuer.sign(claims),
                "expirationTimestamp": format_time(claims["exp"]),
            },
        }
        return Reply(201, encoded(answer))

    def _bound(self, call: TokenCall, ref: Mapping[str, str]) -> tuple[Bound, Bound | None]:
        """Return the pod that a token is bound to, and its node."""
        if ref.get("kind") != "Pod":
            raise bad_request(f"cannot bind token to object of type {ref.get('kind')}")
        stored = self._stored("pods", ref["name"], call.namespace)
        if ref.get("uid", "") not in ("", stored.uid):
            raise StatusError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on Pod "{stored.name}": the UID in the bound object'
                f" reference ({ref['uid']}) does not match the UID in record. The object might have"
                " been deleted and then recreated",
                details={"name": stored.name, "kind": "Pod"},
            )
        spec = get_map(decoded(stored.raw), "spec")
        if spec.get("serviceAccountName", "default") != call.account:
            raise bad_request(
                f'cannot bind token for serviceaccount "{call.account}" to pod running with'
                " different serviceaccount name."
            )
        pod, name = Bound(stored.name, stored.uid), spec.get("nodeName", "")
        if not name:
            return pod, None
        node = self._store.of_kind(self._kind("nodes")).get("", name)
        return pod, Bound(name, node.uid if node is not None else "")

    def _stored(self, plural: str, name: str, namespace: str) -> StoredObject:
        kind = self._kind(plural)
        stored = self._store.of_kind(kind).get(namespace, name)
        if stored is None:
            raise not_found(kind, name)
        return stored

    def _kind(self, plural: str) -> ResourceKind:
        kind = self._kinds.by_path("", "v1", plural)
        if kind is None:
            raise LookupError(f"{plural} are always served")
        return kind

    # Reviews of tokens.

    def _review(self, body: dict[str, Any]) -> Reply:
        spec = get_map(body, "spec")
        token: str = spec.get("token", "")
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        audiences: list[str] = spec.get("audiences") or [self._issuer.issuer]
        claims = self._issuer.verified(token)
        error = _INVALID if claims is None else self._invalid(claims, audiences)
        status: dict[str, Any] = {"user": {}, "error": error}
        if claims is not None and not error:
            common = [each for each in audiences if each in claims["aud"]]
            status = {"authenticated": True, "user": _user(claims), "audiences": common}
        answer = {
            "kind": TOKEN_REVIEW,
            "apiVersion": f"{_GROUP}/v1",
            "metadata": {},
            "spec": spec,
            "status": status,
        }
        return Reply(201, encoded(answer))

    def _invalid(self, claims: Mapping[str, Any], audiences: list[str]) -> str:
        """Return why a token with a valid signature is refused; empty: it is not."""
        if not set(audiences) & set(claims["aud"]):
            return (
                f"[{_INVALID}, token audiences {_quoted(claims['aud'])} is invalid for the target"
                f" audiences {_quoted(audiences)}]"
            )
        if self._clock.now() > claims["exp"] + _LEEWAY:
            return f"[{_INVALID}, service account token has expired]"
        bound = claims["kubernetes.io"]
        for plural, ref in (("serviceaccounts", "serviceaccount"), ("pods", "pod")):
            if ref in bound:
                store = self._store.of_kind(self._kind(plural))
                stored = store.get(bound["namespace"], bound[ref]["name"])
                if stored is None or stored.uid != bound[ref].get("uid"):
                    return f"[{_INVALID}, service account token has been invalidated]"
        return ""


_INVALID = "invalid bearer token"


def _user(claims: Mapping[str, Any]) -> dict[str, Any]:
    bound = claims["kubernetes.io"]
    extra = {"credential-id": [f"JTI={claims['jti']}"]}
    for name in ("node", "pod"):
        for field, value in bound.get(name, {}).items():
            extra[f"{name}-{field}"] = [value]
    return {
        "username": claims["sub"],
        "uid": bound["serviceaccount"]["uid"],
        "groups": [
            "system:serviceaccounts",
            f"system:serviceaccounts:{bound['namespace']}",
            "system:authenticated",
        ],
        "extra": {f"authentication.kubernetes.io/{name}": extra[name] for name in sorted(extra)},
    }


def _quoted(audiences: list[str]) -> str:
    return "[" + " ".join(f'"{each}"' for each in audiences) + "]"


def _duration_causes(seconds: int) -> list[Cause]:
    least, most = _SECONDS
    if seconds < least:
        why = "may not specify a duration less than 10 minutes"
    elif seconds > most:
        why = "may not specify a duration larger than 2^32 seconds"
    else:
        return []
    return [invalid("spec.expirationSeconds", seconds, why)]


def _require_accepted(request: Request, media: str) -> None:
    accepted = request.headers.get("accept", "*/*")
    offered = {clause.split(";")[0].strip() for clause in accepted.split(",")}
    if not offered & {media, "*/*", "application/*"}:
        message = f"406: Not Acceptable\n\nAvailable representations: {media}"
        raise StatusError(406, "NotAcceptable", message, details={})
