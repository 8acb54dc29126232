"""What the Secrets of NATS and sign-in, and the ConfigMap with the CA, are to contain. Pure except
for the random keys.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from libs.bus.callout import CalloutKeys, new_seeds
from libs.bus.keys import NotAKey
from libs.bus.server_config import (
    Nkey,
    ServerCluster,
    SignIn,
    Tls,
    new_nkey,
    nkey_of,
    server_config,
)
from libs.contracts.identities import COMPONENTS
from libs.contracts.nats_names import CA_CONFIG_MAP, CA_FILE, SERVICE
from services.signin.setup import certificates
from services.signin.setup.certificates import NotAPair, Pem

KEYS: Final = "sluice-signin-keys"
"""The seeds of sign-in. No one else may read it: its signing seed can be any identity."""
AUTHORITY: Final = "sluice-nats-authority"
"""The CA with its key, which only this role reads."""
SERVER: Final = "sluice-nats-server"
"""The certificate and the configuration of NATS's servers. It has no key of a user."""
CA: Final = CA_CONFIG_MAP

SECRETS: Final = (KEYS, AUTHORITY, SERVER)
PEERS: Final = "sluice-nats-servers"
"""The Service that names each server, for the other servers."""
FOLDER: Final = "/etc/sluice-nats"
"""Where NATS's servers have the files of their Secret."""
CLUSTER_PORT: Final = 6222

_SIGNING, _XKEY, _NKEY = "signing.seed", "xkey.seed", "nkey.seed"
_CA_CERT, _CA_KEY = CA_FILE, "ca.key"
_CERT, _KEY, _CONFIG = "tls.crt", "tls.key", "nats.conf"

Files = Mapping[str, str]
"""The text of each file of a Secret or ConfigMap; empty where there is none."""


class Unusable(Exception):
    """A Secret has content that cannot be used, and that must not be replaced unasked."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What NATS is to be."""

    namespace: str
    servers: int
    """1 or 3."""
    nodes: int
    """Nodes to expect; it sets how many connections are accepted."""
    folder: str = FOLDER

    def names(self) -> tuple[str, ...]:
        """Return the names by which clients and other servers reach the servers."""
        service = f"{SERVICE}.{self.namespace}.svc"
        return (SERVICE, f"{SERVICE}.{self.namespace}", service, *self._servers())

    def cluster(self) -> ServerCluster | None:
        """Return the cluster of the servers; one server is none."""
        if self.servers == 1:
            return None
        return ServerCluster(
            name=SERVICE,
            listen=f"0.0.0.0:{CLUSTER_PORT}",
            routes=tuple(f"nats-route://{name}:{CLUSTER_PORT}" for name in self._servers()),
            size=self.servers,
        )

    def _servers(self) -> tuple[str, ...]:
        return tuple(
            f"{SERVICE}-{index}.{PEERS}.{self.namespace}.svc" for index in range(self.servers)
        )


def contents(present: Mapping[str, Files], wanted: Wanted, *, now: float) -> dict[str, Files]:
    """Return what each Secret and the ConfigMap are to contain; raise `Unusable`."""
    keys = _keys(present.get(KEYS, {}))
    authority = _authority(present.get(AUTHORITY, {}), now=now)
    server = _server(present.get(SERVER, {}), authority, wanted, now=now)
    return {
        KEYS: keys,
        AUTHORITY: {_CA_CERT: authority.certificate, _CA_KEY: authority.key},
        CA: {_CA_CERT: authority.certificate},
        SERVER: {
            _CERT: server.certificate,
            _KEY: server.key,
            _CA_CERT: authority.certificate,
            _CONFIG: _config(keys, wanted),
        },
    }


def _keys(files: Files) -> Files:
    """Return the seeds that exist, or new ones."""
    if not files:
        signing, xkey = new_seeds()
        return {_SIGNING: signing, _XKEY: xkey, _NKEY: new_nkey().seed}
    try:
        seeds = {name: files[name].strip() for name in (_SIGNING, _XKEY, _NKEY)}
        _public(seeds)
    except (KeyError, NotAKey):
        raise Unusable(
            f"the Secret {KEYS} lacks a seed in {_SIGNING}, {_XKEY} or {_NKEY}, or has another text"
            " there: put the seeds back, or delete the Secret, and new ones are made, with which"
            " NATS and sign-in must start together"
        ) from None
    return files


def _public(keys: Files) -> tuple[CalloutKeys, Nkey]:
    signing, xkey, nkey = (keys[name].strip() for name in (_SIGNING, _XKEY, _NKEY))
    return CalloutKeys.from_seeds(signing, xkey), nkey_of(nkey)


def _authority(files: Files, *, now: float) -> Pem:
    """Return the CA that exists, renewed if it is time, or a new one."""
    if not files:
        return certificates.new_authority(now=now)
    pem = Pem(files.get(_CA_CERT, ""), files.get(_CA_KEY, ""))
    try:
        return certificates.renewed_authority(pem, now=now)
    except NotAPair as error:
        raise Unusable(
            f"{_CA_CERT} and {_CA_KEY} of the Secret {AUTHORITY} cannot be used: {error}; put the"
            " CA back, or delete the Secret, and a new CA is made, which clients and servers must"
            " read at the same time"
        ) from None


def _server(files: Files, authority: Pem, wanted: Wanted, *, now: float) -> Pem:
    """Return the certificate that exists if it is right, or a new one."""
    pem = Pem(files.get(_CERT, ""), files.get(_KEY, ""))
    if certificates.is_right(pem, authority, wanted.names(), now=now):
        return pem
    return certificates.new_server(authority, wanted.names(), now=now)


def _config(keys: Files, wanted: Wanted) -> str:
    callout, nkey = _public(keys)
    sign_in = SignIn(
        issuer=callout.public_signing,
        xkey=callout.public_xkey,
        keys=(nkey.public,),
        identities=wanted.nodes * len(COMPONENTS),
    )
    folder = wanted.folder
    tls = Tls(
        cert_file=f"{folder}/{_CERT}", key_file=f"{folder}/{_KEY}", ca_file=f"{folder}/{_CA_CERT}"
    )
    return server_config(sign_in, tls=tls, cluster=wanted.cluster())
