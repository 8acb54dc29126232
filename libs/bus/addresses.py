"""The addresses of NATS servers, and which of them may get which credentials."""

import ipaddress
from urllib.parse import urlsplit

import msgspec

from libs.bus.credentials import Credentials
from libs.bus.port import BusMisconfigured

DEFAULT_PORT = 4222


class Addresses(msgspec.Struct, frozen=True):
    urls: tuple[str, ...]
    tls: bool
    """All of them start with TLS, or none does."""


def parse_addresses(url: str, credentials: Credentials) -> Addresses:
    """Return the addresses of a comma-separated list; raise `BusMisconfigured` if unsafe."""
    parts = [_parse(part.strip()) for part in url.split(",")]
    schemes = {scheme for scheme, _, _ in parts}
    if len(schemes) > 1:
        raise BusMisconfigured(f"{url} mixes nats:// and tls://: use tls:// for all addresses")
    tls = schemes == {"tls"}
    if not tls and credentials.has_tls_files:
        raise BusMisconfigured(
            f"files for TLS are configured, but {url} is without TLS: use tls:// as address"
        )
    if not tls and credentials.signs_in:
        for _, host, _ in parts:
            if not _is_loopback(host):
                raise BusMisconfigured(
                    f"a token must not be sent to {host} in plain text: use tls:// instead of"
                    f" nats:// as address, and configure the CA of the server"
                )
    urls = (f"{scheme}://{netloc}" for scheme, _, netloc in parts)
    return Addresses(urls=tuple(urls), tls=tls)


def _parse(url: str) -> tuple[str, str, str]:
    """Return scheme, host, and host with port."""
    if "@" in url:
        raise BusMisconfigured(
            "the address of NATS contains a password: provide credentials in a file instead"
        )
    try:
        parsed = urlsplit(url if "://" in url else f"nats://{url}")
        host, port = parsed.hostname, parsed.port or DEFAULT_PORT
    except ValueError:
        host, parsed, port = None, urlsplit(""), 0
    if parsed.scheme not in ("nats", "tls") or not host or len(url.split()) > 1:
        raise BusMisconfigured(
            f"{url!r} is not the address of a NATS server: write tls://HOST:{DEFAULT_PORT}, or"
            f" nats://HOST:{DEFAULT_PORT} without TLS"
        )
    return parsed.scheme, host, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
