"""The body of a request, read and held against the kind that it claims to be."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import bad_request
from libs.testing.apiserver.objects.shapes import MergeShape
from libs.testing.apiserver.status import StatusError

_TEXTS = frozenset({"labels", "annotations", "matchLabels", "data"})


def parse_json(body: bytes) -> Any:
    """Any JSON value; refused where it is none."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        shown = body[:200].decode(errors="replace")
        raise bad_request(
            "the object provided is unrecognized: couldn't get version/kind; json parse error: "
            f"{error} ({shown})"
        ) from error


def unsupported_media(content_type: str) -> StatusError:
    """A body in a language that the server does not speak."""
    return StatusError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: "
        f"application/json; it was {content_type!r}",
    )


def parse_object(body: bytes, kind: ResourceKind) -> dict[str, Any]:
    """An object of the kind; what it does not say of itself is taken from the path."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind})")
    found = cast("dict[str, Any]", value)
    if kind.custom and not (found.get("kind") and found.get("apiVersion")):
        missing = "apiVersion" if found.get("kind") else "Kind"
        shown = body[:200].decode(errors="replace")
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): "
            f"Object '{missing}' is missing in '{shown}'"
        )
    said, version = found.get("kind") or kind.kind, found.get("apiVersion") or kind.api_version
    if (said, version) != (kind.kind, kind.api_version):
        raise _another(said, version, kind)
    found["kind"], found["apiVersion"] = said, version
    return checked_object(found, kind)


def _another(said: str, version: str, kind: ResourceKind) -> StatusError:
    if kind.custom:
        return bad_request(
            "the API version in the data "
            f"({version}) does not match the expected API version ({kind.api_version})"
            if said == kind.kind
            else f"the kind in the data ({said}) does not match the expected kind ({kind.kind})"
        )
    return bad_request(
        f'{said} in version "{version}" cannot be handled as a {kind.kind}: '
        f"converting ({version}.{said}) to ({kind.kind}): unknown conversion"
    )


def checked_object(found: dict[str, Any], kind: ResourceKind, like: Any = None) -> dict[str, Any]:
    """The same object, with metadata, where its parts are of the forms that the kind has.

    What is as in `like` was checked before.
    """
    if found.get("metadata") is None:
        found["metadata"] = {}
    # The rest of a custom object is its schema's to judge.
    looked: dict[str, Any] = {"metadata": found["metadata"]} if kind.custom else found
    for path, wanted in _misshapen(looked, like, kind.shape, ""):
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"json: cannot unmarshal into field {kind.kind}.{path} of type {wanted}"
        )
    return found


def _misshapen(value: Any, like: Any, shape: MergeShape, path: str) -> Iterator[tuple[str, str]]:
    if value is None or shape.sort == "any" or value == like:
        return
    if shape.sort == "map":
        if not isinstance(value, dict):
            yield path, "object"
            return
        entries = cast("dict[str, Any]", value)
        known = cast("dict[str, Any]", like) if isinstance(like, dict) else {}
        for name, given in entries.items():
            below = shape.child(name)
            here = f"{path}.{name}" if path else name
            if below is None:
                continue
            yield from _misshapen(given, known.get(name), below, here)
            if shape.typed and name in _TEXTS and below.sort == "map" and not _texts(given):
                yield here, "string"
    elif shape.sort == "list":
        if not isinstance(value, list):
            yield path, "array"
        elif shape.element is not None and shape.element.sort != "scalar":
            for item in cast("list[Any]", value):
                yield from _misshapen(item, None, shape.element, path)
    elif isinstance(value, dict | list):
        yield path, "a plain value"


def _texts(value: Any) -> bool:
    return all(isinstance(each, str) for each in cast("dict[str, Any]", value or {}).values())


def unknown_fields(found: Mapping[str, Any], shape: MergeShape, path: str = "") -> Iterator[str]:
    """Fields that the kind does not have, and which are dropped."""
    for name, given in found.items():
        below = shape.child(name)
        here = f"{path}.{name}" if path else name
        if below is None:
            if shape.fields or shape.typed:
                yield here
        elif isinstance(given, dict) and below.sort == "map":
            yield from unknown_fields(cast("dict[str, Any]", given), below, here)
        elif isinstance(given, list) and below.element is not None and below.element.sort == "map":
            for place, item in enumerate(cast("list[Any]", given)):
                if isinstance(item, dict):
                    at = f"{here}[{place}]"
                    yield from unknown_fields(cast("dict[str, Any]", item), below.element, at)
