"""The formats of texts and numbers that a server's schema validation knows.

A format that it does not know means nothing, and means nothing here.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Final

INTEGERS: Final = {"int32": 2**31, "int64": 2**63}
"""A format of integers, and the first that is too large."""

_UUID: Final = r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_HOST: Final = re.compile(
    r"(?=.{1,253}$)[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
    r"(\.[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)*"
)
_GO_DURATION: Final = re.compile(r"[-+]?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)")
_WORD_DURATION: Final = re.compile(
    r"(?i)(\d+)\s*(ns|nano|us|µs|micro|ms|milli|s|sec|m|min|h|hr|hour|d|day|w|wk|week)[a-z]*"
)
_TIME: Final = re.compile(
    r"(?i)(\d\d):(\d\d):(\d\d)(\.\d+)?(z|[+-]\d\d:\d\d)",
)


def _fits(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _is_duration(text: str) -> bool:
    return bool(_GO_DURATION.fullmatch(text) or _WORD_DURATION.search(text))


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2006-01-02")


def _is_date_time(text: str) -> bool:
    day, sign, time = text.upper().partition("T")
    match = _TIME.fullmatch(time)
    if not sign or not _is_date(day) or match is None:
        return False
    return match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def fits(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return fits


def _is_bytes(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return bool(text)


def _is_cidr(text: str) -> bool:
    return "/" in text and _parses(lambda t: ipaddress.ip_network(t, strict=False))(text)


TEXTS: Final[Mapping[str, Callable[[str], bool]]] = {
    "byte": _is_bytes,
    "cidr": _is_cidr,
    "date": _is_date,
    "datetime": _is_date_time,
    "duration": _is_duration,
    "email": _fits(r"[^@\s]+@[^@\s]+"),
    "hexcolor": _fits(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": lambda text: _HOST.fullmatch(text) is not None,
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "k8slongname": _fits(
        r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    ),
    "k8sshortname": _fits(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"),
    "mac": _fits(r"([0-9A-Fa-f]{2}[:-]){5}([0-9A-Fa-f]{2}[:-]?){0,3}[0-9A-Fa-f]{2}"),
    "password": lambda _text: True,
    "uri": _fits(r"(/|[a-zA-Z][-+.a-zA-Z0-9]*:)\S*"),
    "uuid": _fits(_UUID % ("[0-9a-f]", "[0-9a-f]")),
    "uuid3": _fits(_UUID % ("3", "[0-9a-f]")),
    "uuid4": _fits(_UUID % ("4", "[89ab]")),
    "uuid5": _fits(_UUID % ("5", "[89ab]")),
}
"""By the name of the format without dashes."""
