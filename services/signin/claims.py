"""Decide from the claims of a verified token who holds it. Pure.

The API server writes the claims; the caller has verified their signature. A component's token is
bound to its pod and names the pod's node, so a holder can only be the component of that node.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from libs.contracts.identities import COMPONENTS, Identity, Writer
from libs.contracts.words import excerpt

AUDIENCE: Final = "sluice"
ACCOUNT_PREFIX: Final = "sluice-"
LEEWAY: Final = 60.0
"""Seconds by which our clock and the API server's may differ."""
SESSION_GRACE: Final = 5400.0
"""Seconds by which the session of a pod outlasts its token: an outage of sign-in of an hour ends no
session, and half an hour remains in which all are renewed. Revocation does not wait for it."""

_SUBJECT: Final = "system:serviceaccount:"
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_UID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_SHOWN: Final = 121

_Time = Annotated[float, msgspec.Meta(ge=0.0, le=2.0**53)]


class Cause(StrEnum):
    """Why a sign-in is refused: the label of the metric."""

    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown-key"
    SIGNATURE = "signature"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    EXPIRED = "expired"
    NOT_YET_VALID = "not-yet-valid"
    ACCOUNT = "account"
    POD = "pod"
    NODE = "node"
    REVIEW = "review"
    SHARE = "share"
    CLIENT = "client"


class Refused(msgspec.Struct, frozen=True):
    """The reason is one sentence, for the log of the cluster's administrator."""

    cause: Cause
    reason: str


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """What a token must say."""

    issuer: str
    namespace: str
    """The namespace of Sluice's ServiceAccounts."""
    cluster: str
    """The name of the cluster in identities."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a token; pod and node are empty for people, the node also for cluster writers."""

    identity: Identity
    namespace: str
    service_account: str
    account_uid: str
    pod_name: str = ""
    pod_uid: str = ""
    node: str = ""
    node_uid: str = ""
    """Empty where the token names none: before Kubernetes 1.30, or where the Node was missing."""
    token_id: str = ""
    """The audit log of the API server names it beside the person who requested the token."""
    expires: int

    @property
    def account(self) -> str:
        """The user name at the API server."""
        return f"{_SUBJECT}{self.namespace}:{self.service_account}"

    @property
    def session_ends(self) -> float:
        """When NATS ends the session. A token is accepted a little after it expires."""
        return self.expires + LEEWAY + (SESSION_GRACE if self.pod_uid else 0.0)


class _Ref(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Bound(msgspec.Struct, frozen=True):
    namespace: str
    serviceaccount: _Ref
    pod: _Ref | None = None
    node: _Ref | None = None


class _Claims(msgspec.Struct, frozen=True):
    iss: str
    sub: str
    aud: tuple[str, ...] | str
    exp: _Time
    nbf: _Time
    iat: _Time
    bound: _Bound = msgspec.field(name="kubernetes.io")
    jti: str = ""


_claims = msgspec.json.Decoder(_Claims)


def holder_of(
    payload: bytes, *, trust: Trust, now: float, node_of: Callable[[str], str]
) -> Holder | Refused:
    """Return the holder; `node_of` returns the node of a known pod by uid, or an empty text."""
    try:
        claims = _claims.decode(payload)
    except (ValueError, RecursionError) as error:
        return Refused(
            Cause.MALFORMED, f"the token has not the claims of a ServiceAccount token: {error}"
        )
    refused = _check_addressees(claims, trust) or _check_times(claims, now)
    if refused is not None:
        return refused
    writer = _writer(claims, trust)
    if isinstance(writer, Refused):
        return writer
    return _holder(claims, writer, trust, node_of)


def claimed_subject(payload: bytes) -> str:
    """Return the subject that an unverified payload claims, for a log line; empty if it is none."""
    try:
        return shown(msgspec.json.decode(payload, type=_Subject).sub)
    except (ValueError, RecursionError):
        return ""


class _Subject(msgspec.Struct, frozen=True):
    sub: str


def shown(text: str) -> str:
    """Return foreign text, short and printable."""
    return excerpt(text, _SHOWN)


def _check_addressees(claims: _Claims, trust: Trust) -> Refused | None:
    if claims.iss != trust.issuer:
        return Refused(
            Cause.ISSUER,
            f"the token is issued by {shown(claims.iss)!r}, not by {trust.issuer!r}, the issuer of"
            " this cluster",
        )
    audiences = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
    if AUDIENCE not in audiences:
        listed = shown(", ".join(audiences))
        return Refused(
            Cause.AUDIENCE,
            f"the token is for {listed!r}: request one with the audience {AUDIENCE!r}",
        )
    return None


def _check_times(claims: _Claims, now: float) -> Refused | None:
    if now >= claims.exp + LEEWAY:
        return Refused(Cause.EXPIRED, f"the token expired {now - claims.exp:.0f} s ago")
    early = max(claims.nbf, claims.iat) - now
    if early > LEEWAY:
        return Refused(
            Cause.NOT_YET_VALID,
            f"the token is valid in {early:.0f} s only: check the clocks of this machine and of the"
            " API server",
        )
    return None


def _writer(claims: _Claims, trust: Trust) -> Writer | Refused:
    bound = claims.bound
    account = bound.serviceaccount
    if claims.sub != f"{_SUBJECT}{bound.namespace}:{account.name}" or not _UID.fullmatch(
        account.uid
    ):
        return Refused(
            Cause.MALFORMED,
            f"the token's subject {shown(claims.sub)!r} does not agree with its ServiceAccount",
        )
    if bound.namespace == trust.namespace and account.name.startswith(ACCOUNT_PREFIX):
        name = account.name.removeprefix(ACCOUNT_PREFIX)
        if name in SIGNED_IN:
            return Writer(name)
    return Refused(
        Cause.ACCOUNT,
        f"{shown(claims.sub)!r} is none of Sluice's accounts, which are in the namespace"
        f" {trust.namespace!r}",
    )


def _holder(
    claims: _Claims, writer: Writer, trust: Trust, node_of: Callable[[str], str]
) -> Holder | Refused:
    bound = claims.bound
    pod, node = bound.pod or _Ref(), bound.node or _Ref()
    if writer is Writer.CTL and (bound.pod is not None or bound.node is not None):
        return Refused(
            Cause.POD,
            f"the token of {bound.serviceaccount.name} is bound to a pod or a node: people request"
            " theirs for the ServiceAccount alone",
        )
    if writer is not Writer.CTL and not (_NAME.fullmatch(pod.name) and _UID.fullmatch(pod.uid)):
        return Refused(
            Cause.POD,
            f"the token of {bound.serviceaccount.name} is bound to no pod: mount it into the pod as"
            " a projected volume",
        )
    on_node = writer in COMPONENTS
    node_name = (node.name or node_of(pod.uid)) if on_node else ""
    if on_node and not _NAME.fullmatch(node_name):
        return Refused(
            Cause.NODE,
            f"the token of pod {pod.name} names no node, and the pod is not known yet: Kubernetes"
            " 1.30 and later name the node in each token",
        )
    return Holder(
        identity=Identity(cluster=trust.cluster, writer=writer, node=node_name),
        namespace=bound.namespace,
        service_account=bound.serviceaccount.name,
        account_uid=bound.serviceaccount.uid,
        pod_name=pod.name,
        pod_uid=pod.uid,
        node=node_name,
        node_uid=node.uid if on_node else "",
        token_id=claims.jti if _UID.fullmatch(claims.jti) else "",
        expires=int(claims.exp),
    )


SIGNED_IN: Final = frozenset(Writer) - {Writer.SIGN_IN}
"""The writers that sign in with a token; the service itself has a key in the configuration."""
