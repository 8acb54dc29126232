"""The configuration of nats-server: accounts, limits, sign-in, TLS and the cluster.

Its only users are the processes of sign-in, each with a key: they admit everybody else.

Addresses, stores and the storage of keys are chosen by the deployment, which includes this text in
its own file. There it also gives each server of a cluster a `server_name` of its own.
"""

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from nacl.signing import SigningKey

from libs.bus.accounts import SPARE_CONNECTIONS, SYSTEM, accounts
from libs.bus.keys import KeyKind, NotAKey, decode_public, decode_seed, encode_public, encode_seed
from libs.bus.permissions import AUTH
from libs.contracts.subjects import STREAMS

HEADERS: Final = 64 * 1024
"""Maximum bytes of a message's headers."""

TLS_SECONDS: Final = 10
"""Time for a TLS handshake. The server's default, 2 s, is too short when a fleet reconnects."""


class Nkey(NamedTuple):
    seed: str
    public: str

    def __repr__(self) -> str:
        return f"Nkey({self.public})"


def new_nkey() -> Nkey:
    """Return a new key pair of a user; the seed is secret."""
    return nkey_of(encode_seed(KeyKind.USER, bytes(SigningKey.generate())))


def nkey_of(seed: str) -> Nkey:
    """Return the pair of a seed (SU…), or raise `NotAKey`."""
    key = SigningKey(decode_seed(KeyKind.USER, seed))
    return Nkey(seed, encode_public(KeyKind.USER, bytes(key.verify_key)))


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    """The auth callout: who admits everybody else."""

    issuer: str
    """The public key (A…) whose signature the server accepts."""
    xkey: str
    """The public curve key (X…) to which the server encrypts requests."""
    keys: tuple[str, ...]
    """The public keys (U…) of the sign-in processes themselves."""
    identities: int
    """The identities of nodes to expect; it sets how many connections are accepted."""
    timeout: int = 10
    """Seconds that a client waits for its admission, and has for its CONNECT."""

    def __post_init__(self) -> None:
        for name, kind, key in (
            ("issuer", KeyKind.ACCOUNT, self.issuer),
            ("xkey", KeyKind.CURVE, self.xkey),
            *(("a key", KeyKind.USER, key) for key in self.keys),
        ):
            try:
                decode_public(kind, key)
            except NotAKey as error:
                raise ValueError(f"{name} of sign-in: {error}; give the public key") from None
        if not self.keys or len(set(self.keys)) < len(self.keys):
            raise ValueError(
                f"the {len(self.keys)} keys of sign-in are none, or some twice: give each of its"
                f" processes a key, or all the same one"
            )


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """The server's certificate, for clients and for the other servers, and who signs theirs."""

    cert_file: str
    key_file: str
    ca_file: str

    def lines(self, *more: str) -> Iterable[str]:
        """Return the block of the configuration."""
        yield "tls {"
        for field in self.__struct_fields__:
            yield f"  {field}: {json.dumps(getattr(self, field))}"
        yield from (f"  {line}" for line in (f"timeout: {TLS_SECONDS}", *more))
        yield "}"


class ServerCluster(msgspec.Struct, frozen=True, kw_only=True):
    """Servers that share accounts and streams."""

    name: str
    listen: str
    """Address for the other servers."""
    routes: tuple[str, ...]
    """Addresses of all servers, nats-route://name:port. Their certificates bear these names."""
    size: int
    """Copies of each stream: 1, or 3 to survive the loss of a server."""

    def __post_init__(self) -> None:
        if self.size not in (1, 3):
            raise ValueError(f"a stream has 1 or 3 copies, not {self.size}")


def server_config(
    sign_in: SignIn, *, tls: Tls | None = None, cluster: ServerCluster | None = None
) -> str:
    """Return a file for the server's configuration to include."""
    if cluster is not None and tls is None:
        raise ValueError(
            f"the cluster {cluster.name} has no TLS: whoever reaches {cluster.listen} could join it"
            f" as a server; describe the certificates with `tls`"
        )
    lines = [
        *_limits_and_accounts(sign_in, cluster),
        *_callout(sign_in),
        *(tls.lines("handshake_first: true") if tls else ()),
        *(_cluster(cluster, tls) if cluster and tls else ()),
    ]
    return "\n".join((*lines, ""))


def _limits_and_accounts(sign_in: SignIn, cluster: ServerCluster | None) -> Iterable[str]:
    described = accounts(
        sorted(sign_in.keys),
        identities=sign_in.identities,
        replicas=cluster.size if cluster else 1,
    )
    connections = sum(account.limits.get("max_connections", 0) for account in described)
    yield f"max_payload: {max(stream.max_message for stream in STREAMS) + HEADERS}"
    yield f"max_connections: {connections + SPARE_CONNECTIONS}"
    yield f"system_account: {SYSTEM}"
    yield "accounts {"
    for account in described:
        yield from account.lines()
    yield "}"


def _callout(sign_in: SignIn) -> Iterable[str]:
    yield "authorization {"
    yield f"  timeout: {sign_in.timeout}"
    yield "  auth_callout {"
    yield f"    issuer: {sign_in.issuer}"
    yield f"    account: {AUTH}"
    yield f"    xkey: {sign_in.xkey}"
    # The server also asks about a user of its configuration, unless it is listed here.
    yield from ("    auth_users: [", *(f"      {key}" for key in sorted(sign_in.keys)), "    ]")
    yield "  }"
    yield "}"


def _cluster(cluster: ServerCluster, tls: Tls) -> Iterable[str]:
    yield "cluster {"
    yield f"  name: {json.dumps(cluster.name)}"
    yield f"  listen: {json.dumps(cluster.listen)}"
    # Without this, whoever has any certificate of the CA could join as a server.
    yield from (f"  {line}" for line in tls.lines("verify_cert_and_check_known_urls: true"))
    yield from ("  routes: [", *(f"    {json.dumps(route)}" for route in cluster.routes), "  ]")
    yield "}"
