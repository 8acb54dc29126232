"""CustomResourceDefinitions: whether one holds together, and the kinds that it describes.

Pure. Must not know when a kind begins to be served, nor when it ends.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from libs.testing.apiserver.kinds import NAME_FIELDS, Column, Kind
from libs.testing.apiserver.kinds.names import Cause
from libs.testing.apiserver.kinds.refusals import invalid_value, required
from libs.testing.apiserver.kinds.strategies import Strategy
from libs.testing.apiserver.objects.parts import Thing, items, made, part, words
from libs.testing.apiserver.objects.shapes import from_schema
from libs.testing.apiserver.schemas import structural
from libs.testing.apiserver.schemas.rules import Predicate
from libs.testing.apiserver.status import Refused

RESOURCE = "customresourcedefinitions.apiextensions.k8s.io"
_FIXED = ("group", "scope", "names.plural", "names.kind")


class CustomDefinitions(Strategy):
    """What makes a kind."""

    shares_metadata = False

    def __init__(self, rules: Mapping[str, Predicate]) -> None:
        self._rules = rules

    def fill(self, thing: Thing) -> None:
        """Names that follow from others, and that versions differ in name only."""
        spec = made(thing, "spec")
        names = made(spec, "names")
        kind: str = names.get("kind") or ""
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"
        spec.setdefault("conversion", {"strategy": "None"})

    def begin(self, thing: Thing) -> None:
        """Nobody has looked at its names yet."""
        thing["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": [each["name"] for each in _versions(thing) if each.get("storage")],
        }

    def flaws(self, thing: Mapping[str, Any]) -> list[Cause]:
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

    def breaches(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
        """Another kind under the same name."""
        return [
            invalid_value(f"spec.{field}", _at(new, field), "field is immutable")
            for field in _FIXED
            if _at(new, field) != _at(old, field)
        ]

    def _schema_flaws(self, thing: Mapping[str, Any]) -> Iterator[Cause]:
        for place, version in enumerate(_versions(thing)):
            where = f"spec.versions[{place}].schema.openAPIV3Schema"
            schema = part(version, "schema").get("openAPIV3Schema")
            if schema is None:
                yield required(where, "schemas are required")
                continue
            try:
                structural(schema, self._rules, where=where)
            except Refused as refused:
                yield from refused.causes


def served(thing: Mapping[str, Any], rules: Mapping[str, Predicate]) -> Iterator[Kind]:
    """The kinds that a definition makes, one for each version that it serves."""
    spec: Thing = thing["spec"]
    names: Thing = spec["names"]
    stored = next(each["name"] for each in _versions(thing) if each.get("storage"))
    namespaced = spec["scope"] == "Namespaced"
    for version in _versions(thing):
        if not version.get("served"):
            continue
        schema = version["schema"]["openAPIV3Schema"]
        fields = tuple(
            each["jsonPath"].removeprefix(".") for each in items(version, "selectableFields")
        )
        yield Kind(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            singular=names["singular"],
            kind=names["kind"],
            list_kind=names["listKind"],
            short_names=tuple(words(names, "shortNames")),
            namespaced=namespaced,
            categories=tuple(words(names, "categories")),
            subresources=tuple(
                name for name in ("status",) if name in part(version, "subresources")
            ),
            selectable=(NAME_FIELDS if namespaced else NAME_FIELDS[:1]) + fields,
            shape=from_schema(schema),
            columns=tuple(
                msgspec.convert(each, Column) for each in items(version, "additionalPrinterColumns")
            ),
            schema=structural(schema, rules),
            stored_as=f"{spec['group']}/{stored}",
            generations=True,
            put_unfenced=False,
        )


def _versions(thing: Mapping[str, Any]) -> list[Thing]:
    return items(thing, "spec", "versions")


def _at(thing: Mapping[str, Any], path: str) -> str:
    names = path.split(".")
    return str(part(thing, "spec", *names[:-1]).get(names[-1]) or "")
