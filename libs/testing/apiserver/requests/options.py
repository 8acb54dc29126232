"""The query of a request, read and judged: of lists and watches, and of writes."""

import re
from collections.abc import Mapping

import msgspec

from libs.testing.apiserver.kinds.status_errors import (
    bad_request,
    forbidden,
    invalid_options,
    unsupported,
)
from libs.testing.apiserver.status import StatusError

EXACT = "Exact"
NOT_OLDER = "NotOlderThan"
REQUEST_TIMEOUT = 60.0
"""Seconds that a request may take where it does not say."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a list or a watch is asked with, beside selectors."""

    limit: int
    resume: str
    revision: str
    match: str
    watch: bool
    bookmarks: bool
    initial: bool | None
    timeout: float | None

    @property
    def number(self) -> int:
        """The revision as a number; 0 where none is named."""
        return int(self.revision or 0)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Whether it is set."""
    return query.get(name, "") in _TRUE


def list_options(query: Mapping[str, str]) -> ListOptions:
    """Of a list or a watch; refused where they contradict each other."""
    options = ListOptions(
        limit=_integer(query, "limit"),
        resume=query.get("continue", ""),
        revision=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        watch=flag(query, "watch"),
        bookmarks=flag(query, "allowWatchBookmarks"),
        initial=flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
        timeout=_integer(query, "timeoutSeconds") or None,
    )
    _judge(options)
    if not options.revision.isdecimal() and options.revision:
        raise _not_a_revision(options)
    if options.resume and options.revision not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    return options


def minimum_revision(query: Mapping[str, str]) -> int:
    """What a read of one object must not be older than."""
    text = query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise bad_request(f"invalid resource version: {_no_number(text)}")
    return int(text)


def _judge(options: ListOptions) -> None:
    match, field = options.match, "resourceVersionMatch"
    cause = None
    if options.watch:
        if options.initial is not None and match != NOT_OLDER:
            cause = forbidden(
                field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        elif options.initial is None and match:
            cause = forbidden(
                field,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
    elif options.initial is not None:
        cause = forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
    elif match and not options.revision:
        cause = forbidden(
            field, "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    elif match and options.resume:
        cause = forbidden(field, "resourceVersionMatch is forbidden when continue is provided")
    elif match not in ("", EXACT, NOT_OLDER):
        cause = unsupported(field, f'"{match}"', (EXACT, NOT_OLDER, ""))
    elif match == EXACT and options.revision == "0":
        words = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        cause = forbidden(field, words)
    if cause is not None:
        raise invalid_options("ListOptions", [cause])


def _not_a_revision(options: ListOptions) -> StatusError:
    words = _no_number(options.revision)
    if options.watch:
        return StatusError(500, "", words)
    return bad_request(f"invalid resource version: {words}")


def _no_number(text: str) -> str:
    return (
        f'resourceVersion: Invalid value: "{text}": '
        f'strconv.ParseUint: parsing "{text}": invalid syntax'
    )


def _integer(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if not text:
        return 0
    if not text.removeprefix("-").isdecimal():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def request_timeout(query: Mapping[str, str]) -> float:
    """Seconds that the server may take."""
    text = query.get("timeout", "")
    if not text:
        return REQUEST_TIMEOUT
    parts = _DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        raise bad_request(
            f'invalid timeout specified in the request URL - time: invalid duration "{text}"'
        )
    return sum(float(number) * _UNITS[unit] for number, unit in parts) or REQUEST_TIMEOUT


def dry_run(query: Mapping[str, str], *, options: str) -> bool:
    """Whether nothing is to be stored."""
    asked = query.get("dryRun", "")
    if asked not in ("", "All"):
        raise invalid_options(options, [unsupported("dryRun", f'["{asked}"]', ("All",))])
    return bool(asked)
