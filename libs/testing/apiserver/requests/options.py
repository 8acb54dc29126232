"""Query options of lists, watches and writes."""

import re
from collections.abc import Mapping

import msgspec

from libs.testing.apiserver.kinds.status_errors import bad_request, invalid_options, invalid_syntax
from libs.testing.apiserver.schemas.causes import forbidden, unsupported
from libs.testing.apiserver.status import StatusError

REQUEST_TIMEOUT = 60.0
"""Seconds that a request may take unless its query says otherwise."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a list or a watch, without its selectors."""

    limit: int
    continue_token: str
    resource_version: str
    bookmarks: bool
    timeout: float | None

    @property
    def revision(self) -> int:
        """The requested revision; 0 without one."""
        return int(self.resource_version or 0)


def flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "") in _TRUE


def list_options(query: Mapping[str, str]) -> ListOptions:
    """Return the options of a list or a watch; refuse contradictions."""
    for name in ("sendInitialEvents", "resourceVersionMatch"):
        # A client that is refused these falls back to a list and a watch.
        if name in query:
            raise invalid_options("ListOptions", [forbidden(name, "not simulated by this server")])
    resource_version, token = query.get("resourceVersion", ""), query.get("continue", "")
    if resource_version and not resource_version.isdecimal():
        message = _invalid_revision(resource_version)
        if flag(query, "watch"):
            raise StatusError(500, "", message)
        raise bad_request(f"invalid resource version: {message}")
    if token and resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    return ListOptions(
        limit=_integer(query, "limit"),
        continue_token=token,
        resource_version=resource_version,
        bookmarks=flag(query, "allowWatchBookmarks"),
        timeout=_integer(query, "timeoutSeconds") or None,
    )


def minimum_revision(query: Mapping[str, str]) -> int:
    """Return the revision that a read of one object must have reached."""
    text = query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise bad_request(f"invalid resource version: {_invalid_revision(text)}")
    return int(text)


def _invalid_revision(text: str) -> str:
    return (
        f'resourceVersion: Invalid value: "{text}": '
        f'strconv.ParseUint: parsing "{text}": invalid syntax'
    )


def _integer(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "") or "0"
    if not text.removeprefix("-").isdecimal():
        raise bad_request(invalid_syntax(text))
    return int(text)


def request_timeout(query: Mapping[str, str]) -> float:
    """Return the seconds that the request may take."""
    text = query.get("timeout", "")
    parts = _DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        raise bad_request(
            f'invalid timeout specified in the request URL - time: invalid duration "{text}"'
        )
    return sum(float(number) * _SECONDS[unit] for number, unit in parts) or REQUEST_TIMEOUT


def dry_run(query: Mapping[str, str], *, options: str) -> bool:
    """Return whether nothing is to be stored; `options` names the options in an error."""
    value = query.get("dryRun", "")
    if value not in ("", "All"):
        raise invalid_options(options, [unsupported("dryRun", [value], ("All",))])
    return bool(value)
