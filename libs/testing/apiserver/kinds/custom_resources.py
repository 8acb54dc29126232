"""CustomResourceDefinitions: whether one holds together, and the kinds that it describes.

Pure. Must not know when a kind begins to be served, nor when it ends.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from libs.testing.apiserver.kinds.kind import NAME_FIELDS, CustomColumn, ResourceKind
from libs.testing.apiserver.kinds.names import Cause
from libs.testing.apiserver.kinds.status_errors import invalid_value, required
from libs.testing.apiserver.kinds.strategies import KindStrategy
from libs.testing.apiserver.objects.json_access import (
    JsonObject,
    ensure_map,
    get_map,
    get_maps,
    get_strings,
)
from libs.testing.apiserver.objects.shapes import from_schema
from libs.testing.apiserver.schemas.rules import Predicate
from libs.testing.apiserver.schemas.schema import structural_schema
from libs.testing.apiserver.status import StatusError

RESOURCE = "customresourcedefinitions.apiextensions.k8s.io"
_FIXED = ("group", "scope", "names.plural", "names.kind")


class CustomResourceDefinitionStrategy(KindStrategy):
    """What makes a kind."""

    shares_metadata = False

    def __init__(self, rules: Mapping[str, Predicate]) -> None:
        self._rules = rules

    def set_defaults(self, thing: JsonObject) -> None:
        """Names that follow from others, and that versions differ in name only."""
        spec = ensure_map(thing, "spec")
        names = ensure_map(spec, "names")
        kind: str = names.get("kind") or ""
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_for_create(self, thing: JsonObject) -> None:
        """Nobody has looked at its names yet."""
        thing["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": [each["name"] for each in _versions(thing) if each.get("storage")],
        }

    def validate(self, thing: Mapping[str, Any]) -> list[Cause]:
        """Names that do not fit, versions that cannot be stored, schemas that are none."""
        name = thing["metadata"]["name"]
        found = [required(f"spec.{field}", "") for field in _FIXED if not _at(thing, field)]
        if name != f"{_at(thing, 'names.plural')}.{_at(thing, 'group')}":
            why = 'must be spec.names.plural+"."+spec.group'
            found.append(invalid_value("metadata.name", name, why))
        if sum(1 for each in _versions(thing) if each.get("storage")) != 1:
            why = "must have exactly one version marked as storage version"
            found.append(invalid_value("spec.versions", "", why))
        if _at(thing, "conversion.strategy") != "None":
            why = "this simulated server converts between versions by their name only"
            strategy = _at(thing, "conversion.strategy")
            found.append(invalid_value("spec.conversion.strategy", strategy, why))
        return found + list(self._schema_flaws(thing))

    def validate_update(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
        """Another kind under the same name."""
        return [
            invalid_value(f"spec.{field}", _at(new, field), "field is immutable")
            for field in _FIXED
            if _at(new, field) != _at(old, field)
        ]

    def _schema_flaws(self, thing: Mapping[str, Any]) -> Iterator[Cause]:
        for place, version in enumerate(_versions(thing)):
            where = f"spec.versions[{place}].schema.openAPIV3Schema"
            schema = get_map(version, "schema").get("openAPIV3Schema")
            if schema is None:
                yield required(where, "schemas are required")
                continue
            try:
                structural_schema(schema, self._rules, where=where)
            except StatusError as refused:
                yield from refused.causes


def served_kinds(
    thing: Mapping[str, Any], rules: Mapping[str, Predicate]
) -> Iterator[ResourceKind]:
    """The kinds that a definition makes, one for each version that it serves."""
    spec: JsonObject = thing["spec"]
    names: JsonObject = spec["names"]
    stored = next(each["name"] for each in _versions(thing) if each.get("storage"))
    namespaced = spec["scope"] == "Namespaced"
    for version in _versions(thing):
        if not version.get("served"):
            continue
        schema = version["schema"]["openAPIV3Schema"]
        fields = tuple(
            each["jsonPath"].removeprefix(".") for each in get_maps(version, "selectableFields")
        )
        yield ResourceKind(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            singular=names["singular"],
            kind=names["kind"],
            list_kind=names["listKind"],
            short_names=tuple(get_strings(names, "shortNames")),
            namespaced=namespaced,
            categories=tuple(get_strings(names, "categories")),
            subresources=tuple(
                name for name in ("status",) if name in get_map(version, "subresources")
            ),
            selectable=(NAME_FIELDS if namespaced else NAME_FIELDS[:1]) + fields,
            shape=from_schema(schema),
            columns=tuple(
                msgspec.convert(each, CustomColumn)
                for each in get_maps(version, "additionalPrinterColumns")
            ),
            schema=structural_schema(schema, rules),
            stored_as=f"{spec['group']}/{stored}",
            generations=True,
            put_unfenced=False,
        )


def _versions(thing: Mapping[str, Any]) -> list[JsonObject]:
    return get_maps(thing, "spec", "versions")


def _at(thing: Mapping[str, Any], path: str) -> str:
    names = path.split(".")
    return str(get_map(thing, "spec", *names[:-1]).get(names[-1]) or "")
