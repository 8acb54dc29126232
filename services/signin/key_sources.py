"""Where the public keys of tokens are read: the API server, an address, or a file."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, urlsplit

import msgspec

from libs.kube.errors import KubeError
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.requests import JSON, Request, Transport
from libs.runtime.clock import Clock
from libs.runtime.fatal import Fatal
from libs.runtime.service import Service
from libs.runtime.tasks import bounded
from services.signin.signatures import Keys, NoKeys, parse_keys

FETCH_SECONDS: Final = 5.0
MAX_DOCUMENT: Final = 1 << 20

_CONFIGURATION: Final = "/.well-known/openid-configuration"
_JWKS: Final = "/openid/v1/jwks"
_ACCEPT: Final = f"application/jwk-set+json, {JSON}"


class KeySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the keys come from: the API server, or what is named here."""

    issuer: str = ""
    """Empty: as the API server says."""
    jwks_url: str = ""
    jwks_ca_file: str = ""
    """Certificates to trust for `jwks_url`; empty: those of the system."""
    jwks_file: str = ""

    def __post_init__(self) -> None:
        if self.jwks_url and self.jwks_file:
            raise ValueError("jwks_url and jwks_file are both set: keys come from one of them")
        address = urlsplit(self.jwks_url)
        if self.jwks_url and (address.scheme != "https" or not address.hostname):
            raise ValueError(f"jwks_url {self.jwks_url!r} is no https:// address")
        if "@" in address.netloc:
            raise ValueError("jwks_url contains a password: public keys need none")
        if (self.jwks_url or self.jwks_file) and not self.issuer:
            raise ValueError(
                "issuer is not set: name the issuer whose keys jwks_url or jwks_file holds"
            )


class Issuer(msgspec.Struct, frozen=True):
    """Who signs tokens, and the keys that verify them."""

    name: str
    keys: Keys


class KeysUnavailable(Exception):
    """The keys cannot be read now; the text says from where and why."""


class KeySource(Protocol):
    async def read(self) -> Issuer:
        """Read the keys; raise `KeysUnavailable` if they cannot be."""
        ...


class ClusterKeys:
    """The keys that the API server publishes, and by default the issuer that it names."""

    def __init__(self, transport: Transport, *, clock: Clock, issuer: str = "") -> None:
        self._transport = transport
        self._clock = clock
        self._issuer = issuer

    async def read(self) -> Issuer:
        name = self._issuer
        if not name:
            document = await fetch(self._transport, _CONFIGURATION, clock=self._clock)
            name = _issuer_in(document)
        document = await fetch(self._transport, _JWKS, clock=self._clock)
        return Issuer(name, _parse(document, f"the API server's {_JWKS}"))


class AddressKeys:
    """The keys at an address outside the cluster."""

    def __init__(self, transport: Transport, *, issuer: str, url: str, clock: Clock) -> None:
        address = urlsplit(url)
        self._transport = transport
        self._issuer = issuer
        self._path = address.path or "/"
        self._query = dict(parse_qsl(address.query))
        self._clock = clock

    async def read(self) -> Issuer:
        document = await fetch(self._transport, self._path, query=self._query, clock=self._clock)
        return Issuer(self._issuer, _parse(document, f"{self._transport}{self._path}"))


class FileKeys:
    def __init__(self, path: str, *, issuer: str) -> None:
        self._path = path
        self._issuer = issuer

    async def read(self) -> Issuer:
        try:
            document = await asyncio.to_thread(_read_file, Path(self._path))
        except OSError as error:
            raise KeysUnavailable(f"{self._path}: {error.strerror}") from None
        return Issuer(self._issuer, _parse(document, self._path))


async def open_source(
    settings: KeySettings, *, kube: Transport, clock: Clock, service: Service
) -> KeySource:
    """Return the source that the settings name."""
    if settings.jwks_file:
        return FileKeys(settings.jwks_file, issuer=settings.issuer)
    if not settings.jwks_url:
        return ClusterKeys(kube, clock=clock, issuer=settings.issuer)
    try:
        tls = await asyncio.to_thread(
            ssl.create_default_context, cafile=settings.jwks_ca_file or None
        )
    except (OSError, ssl.SSLError) as error:
        raise Fatal(
            f"the certificates for the keys of tokens, {settings.jwks_ca_file}, cannot be read:"
            f" {error}; mount them or configure another path"
        ) from error
    address = urlsplit(settings.jwks_url)
    transport = HttpTransport(f"https://{address.netloc}", credentials=StaticToken(tls=tls))
    await service.enter("keys", transport)
    return AddressKeys(transport, issuer=settings.issuer, url=settings.jwks_url, clock=clock)


async def fetch(
    transport: Transport, path: str, *, clock: Clock, query: Mapping[str, str] | None = None
) -> bytes:
    """Return a document of limited size, in limited time; raise `KeysUnavailable`."""
    request = Request(method="GET", path=path, query=query or {}, headers={"accept": _ACCEPT})
    where = f"{transport}{path}"
    try:
        return await bounded(_fetch(transport, request), seconds=FETCH_SECONDS, clock=clock)
    except TimeoutError:
        raise KeysUnavailable(f"{where}: not answered within {FETCH_SECONDS:g} s") from None
    except KubeError as error:
        raise KeysUnavailable(str(error)) from None
    except _Refused as error:
        raise KeysUnavailable(f"{where}: {error}") from None


class _Refused(Exception):
    pass


async def _fetch(transport: Transport, request: Request) -> bytes:
    async with transport.open(request) as response:
        if response.status != 200:
            hint = "; grant it in RBAC" if response.status == 403 else ""
            raise _Refused(f"the server answered {response.status}{hint}")
        document = bytearray()
        chunks = response.chunks()
        try:
            async for chunk in chunks:
                document += chunk
                if len(document) > MAX_DOCUMENT:
                    raise _Refused(f"the document has more than {MAX_DOCUMENT} bytes")
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()
        return bytes(document)


def _issuer_in(document: bytes) -> str:
    try:
        found: Mapping[str, Any] = msgspec.json.decode(document, type=dict[str, Any])
        name = found.get("issuer")
    except (ValueError, RecursionError) as error:
        raise KeysUnavailable(f"the API server's {_CONFIGURATION} is not JSON: {error}") from None
    if not isinstance(name, str) or not name:
        raise KeysUnavailable(f"the API server's {_CONFIGURATION} names no issuer")
    return name


def _parse(document: bytes, where: str) -> Keys:
    try:
        return parse_keys(document)
    except NoKeys as error:
        raise KeysUnavailable(f"{where}: {error}") from None


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        document = file.read(MAX_DOCUMENT + 1)
    if len(document) > MAX_DOCUMENT:
        raise OSError(0, f"it has more than {MAX_DOCUMENT} bytes")
    return document
