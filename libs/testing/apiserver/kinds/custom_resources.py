"""CustomResourceDefinitions: their validation, and the kinds that they define."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from libs.testing.apiserver.kinds.kind import NAME_FIELDS, CustomColumn, ResourceKind
from libs.testing.apiserver.kinds.schema import Predicate, structural_schema
from libs.testing.apiserver.kinds.strategies import KindStrategy
from libs.testing.apiserver.objects.json import (
    JsonObject,
    ensure_map,
    get_map,
    get_maps,
    get_strings,
)
from libs.testing.apiserver.objects.shapes import from_schema
from libs.testing.apiserver.status import Cause, StatusError, invalid, required

RESOURCE = "customresourcedefinitions.apiextensions.k8s.io"
_IDENTITY_FIELDS = ("group", "scope", "names.plural", "names.kind")


class CustomResourceDefinitionStrategy(KindStrategy):
    shares_metadata = False

    def __init__(self, rules: Mapping[str, Predicate]) -> None:
        self._rules = rules

    def set_defaults(self, obj: JsonObject) -> None:
        spec = ensure_map(obj, "spec")
        names = ensure_map(spec, "names")
        kind: str = names.get("kind") or ""
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_for_create(self, obj: JsonObject) -> None:
        obj["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": [each["name"] for each in _versions(obj) if each.get("storage")],
        }

    def validate(self, obj: Mapping[str, Any]) -> list[Cause]:
        name = obj["metadata"]["name"]
        causes = [required(f"spec.{field}") for field in _IDENTITY_FIELDS if not _value(obj, field)]
        if name != f"{_value(obj, 'names.plural')}.{_value(obj, 'group')}":
            why = 'must be spec.names.plural+"."+spec.group'
            causes.append(invalid("metadata.name", name, why))
        versions = _versions(obj)
        if sum(1 for each in versions if each.get("storage")) != 1:
            why = "must have exactly one version marked as storage version"
            causes.append(invalid("spec.versions", "", why))
        elif len(versions) > 1:
            why = "this simulated server supports one version"
            causes.append(invalid("spec.versions", "", why))
        return causes + list(self._schema_errors(obj))

    def validate_update(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
        return [
            invalid(f"spec.{field}", _value(new, field), "field is immutable")
            for field in _IDENTITY_FIELDS
            if _value(new, field) != _value(old, field)
        ]

    def _schema_errors(self, obj: Mapping[str, Any]) -> Iterator[Cause]:
        for index, version in enumerate(_versions(obj)):
            where = f"spec.versions[{index}].schema.openAPIV3Schema"
            schema = get_map(version, "schema").get("openAPIV3Schema")
            if schema is None:
                yield required(where, "schemas are required")
                continue
            try:
                structural_schema(schema, self._rules, where=where)
            except StatusError as error:
                yield from error.causes


def served_kind(definition: Mapping[str, Any], rules: Mapping[str, Predicate]) -> ResourceKind:
    """Return the kind that a definition defines."""
    spec: JsonObject = definition["spec"]
    names: JsonObject = spec["names"]
    (version,) = _versions(definition)
    schema = version["schema"]["openAPIV3Schema"]
    namespaced = spec["scope"] == "Namespaced"
    return ResourceKind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        singular=names["singular"],
        kind=names["kind"],
        list_kind=names["listKind"],
        short_names=tuple(get_strings(names, "shortNames")),
        namespaced=namespaced,
        categories=tuple(get_strings(names, "categories")),
        subresources=("status",) if "status" in get_map(version, "subresources") else (),
        selectable=NAME_FIELDS if namespaced else NAME_FIELDS[:1],
        shape=from_schema(schema),
        columns=tuple(
            msgspec.convert(each, CustomColumn)
            for each in get_maps(version, "additionalPrinterColumns")
        ),
        schema=structural_schema(schema, rules),
        generations=True,
        put_without_revision=False,
    )


def _versions(definition: Mapping[str, Any]) -> list[JsonObject]:
    return get_maps(definition, "spec", "versions")


def _value(definition: Mapping[str, Any], path: str) -> str:
    names = path.split(".")
    return str(get_map(definition, "spec", *names[:-1]).get(names[-1]) or "")
