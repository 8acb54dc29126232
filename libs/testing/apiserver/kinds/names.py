"""Validation of names, labels, annotations, owners and finalizers, in a real server's words."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from libs.testing.apiserver.status import Cause, forbidden, invalid, required, too_long

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_KEY = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_WORDS = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_CACHE_SIZE = 16_384
"""Number of cached keys and values; the nodes of a fleet have many in common."""

_ANNOTATION_BYTES = 256 * 1024


def validate_subdomain(name: str) -> str:
    """Return why the name is no subdomain, or an empty string, like the functions below."""
    if len(name) > 253:
        return "must be no more than 253 bytes"
    return "" if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_WORDS


def validate_label(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return "" if _LABEL.fullmatch(name) else _LABEL_WORDS


def validate_path_segment(name: str) -> str:
    if name in (".", ".."):
        return f"may not be '{name}'"
    found = [each for each in "/%" if each in name]
    return f"may not contain '{found[0]}'" if found else ""


@lru_cache(maxsize=_CACHE_SIZE)
def validate_qualified_name(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if slash:
        if not prefix:
            return "prefix part must be non-empty"
        why = validate_subdomain(prefix)
        if why:
            return f"prefix part {why}"
    if not name:
        return f"name part must be non-empty; {_KEY_WORDS}"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    return "" if _KEY.fullmatch(name) else _KEY_WORDS


@lru_cache(maxsize=_CACHE_SIZE)
def validate_label_value(value: str) -> str:
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return "" if _VALUE.fullmatch(value) else _VALUE_WORDS


def validate_metadata(metadata: Mapping[str, Any], *, old: Mapping[str, Any] | None) -> list[Cause]:
    """Return the violations of the metadata other than the name."""
    was = old or {}
    return [
        *_labels(_changed("labels", metadata, was), "metadata.labels"),
        *_annotations(_changed("annotations", metadata, was)),
        *_owners(metadata.get("ownerReferences") or []),
        *_finalizers(metadata, old),
    ]


def _changed(name: str, metadata: Mapping[str, Any], was: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the map, or an empty map if it is unchanged and thus valid."""
    now: Mapping[str, str] = metadata.get(name) or {}
    return {} if now == was.get(name) else now


def _labels(labels: Mapping[str, str], field: str) -> Iterator[Cause]:
    for key, value in sorted(labels.items()):
        if why := validate_qualified_name(key):
            yield invalid(field, key, why)
        if why := validate_label_value(value):
            yield invalid(field, value, why)


def _annotations(annotations: Mapping[str, str]) -> Iterator[Cause]:
    field = "metadata.annotations"
    for key in sorted(annotations):
        if why := validate_qualified_name(key.lower()):
            yield invalid(field, key, why)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _ANNOTATION_BYTES:
        yield too_long(field, _ANNOTATION_BYTES)


def _owners(owners: list[Mapping[str, Any]]) -> Iterator[Cause]:
    for index, owner in enumerate(owners):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                yield required(f"metadata.ownerReferences[{index}].{name}", "must not be empty")


def _finalizers(metadata: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[Cause]:
    finalizers: list[str] = metadata.get("finalizers") or []
    for each in finalizers:
        if why := validate_qualified_name(each):
            yield invalid("metadata.finalizers", each, why)
    if old is not None and old.get("deletionTimestamp"):
        known: list[str] = old.get("finalizers") or []
        added = [each for each in finalizers if each not in known]
        if added:
            words = ", ".join(f'"{each}"' for each in added)
            yield forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new "
                f"finalizers []string{{{words}}}",
            )
