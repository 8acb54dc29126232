"""Parses request bodies, and checks them against the shape of their kind."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from libs.testing.apiserver.kinds.kind import ResourceKind
from libs.testing.apiserver.kinds.status_errors import bad_request
from libs.testing.apiserver.objects.shapes import MergeShape
from libs.testing.apiserver.status import StatusError

APPLY = "application/apply-patch+yaml"
_TEXT_MAPS = frozenset({"labels", "annotations", "matchLabels", "data"})


def parse_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        shown = body[:200].decode(errors="replace")
        raise bad_request(
            "the object provided is unrecognized: couldn't get version/kind; json parse error: "
            f"{error} ({shown})"
        ) from error


def unsupported_media(content_type: str) -> StatusError:
    """Return the error of a body that is not JSON."""
    return StatusError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: "
        f"application/json; it was {content_type!r}",
    )


def parse_object(body: bytes, kind: ResourceKind) -> dict[str, Any]:
    """Parse an object of the kind; kind and apiVersion default to those of the path."""
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
    name, version = found.get("kind") or kind.kind, found.get("apiVersion") or kind.api_version
    if (name, version) != (kind.kind, kind.api_version):
        raise _kind_mismatch(name, version, kind)
    found["kind"], found["apiVersion"] = name, version
    return checked_object(found, kind)


def _kind_mismatch(name: str, version: str, kind: ResourceKind) -> StatusError:
    if kind.custom:
        return bad_request(
            "the API version in the data "
            f"({version}) does not match the expected API version ({kind.api_version})"
            if name == kind.kind
            else f"the kind in the data ({name}) does not match the expected kind ({kind.kind})"
        )
    return bad_request(
        f'{name} in version "{version}" cannot be handled as a {kind.kind}: '
        f"converting ({version}.{name}) to ({kind.kind}): unknown conversion"
    )


def checked_object(found: dict[str, Any], kind: ResourceKind, like: Any = None) -> dict[str, Any]:
    """Return the object with metadata; parts that equal `like` are not checked again."""
    if found.get("metadata") is None:
        found["metadata"] = {}
    # The schema of a custom kind checks the rest of the object.
    checked: dict[str, Any] = {"metadata": found["metadata"]} if kind.custom else found
    for path, type_ in _type_errors(checked, like, kind.shape, ""):
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"json: cannot unmarshal into field {kind.kind}.{path} of type {type_}"
        )
    return found


def _type_errors(value: Any, like: Any, shape: MergeShape, path: str) -> Iterator[tuple[str, str]]:
    if value is None or shape.sort == "any" or value == like:
        return
    if shape.sort == "map":
        if not isinstance(value, dict):
            yield path, "object"
            return
        entries = cast("dict[str, Any]", value)
        like_entries = cast("dict[str, Any]", like) if isinstance(like, dict) else {}
        for name, entry in entries.items():
            below = shape.child(name)
            entry_path = f"{path}.{name}" if path else name
            if below is None:
                continue
            yield from _type_errors(entry, like_entries.get(name), below, entry_path)
            if shape.typed and name in _TEXT_MAPS and below.sort == "map" and not _all_texts(entry):
                yield entry_path, "string"
    elif shape.sort == "list":
        if not isinstance(value, list):
            yield path, "array"
        elif shape.element is not None and shape.element.sort != "scalar":
            for item in cast("list[Any]", value):
                yield from _type_errors(item, None, shape.element, path)
    elif isinstance(value, dict | list):
        yield path, "a plain value"


def _all_texts(value: Any) -> bool:
    return all(isinstance(each, str) for each in cast("dict[str, Any]", value or {}).values())


def unknown_fields(found: Mapping[str, Any], shape: MergeShape, path: str = "") -> Iterator[str]:
    """Iterate over the fields that the kind does not declare."""
    for name, given in found.items():
        below = shape.child(name)
        here = f"{path}.{name}" if path else name
        if below is None:
            if shape.fields or shape.typed:
                yield here
        elif isinstance(given, dict) and below.sort == "map":
            yield from unknown_fields(cast("dict[str, Any]", given), below, here)
        elif isinstance(given, list) and below.element is not None and below.element.sort == "map":
            for index, item in enumerate(cast("list[Any]", given)):
                if isinstance(item, dict):
                    at = f"{here}[{index}]"
                    yield from unknown_fields(cast("dict[str, Any]", item), below.element, at)
