"""CustomResourceDefinitions: from an object that describes a kind to a kind that is served.

Here one is established at once; a real server takes some seconds.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from sluice.sim.apiserver.encoding import decoded
from sluice.sim.apiserver.kinds import NAME_FIELDS, Column, Kind, Kinds
from sluice.sim.apiserver.names import Cause
from sluice.sim.apiserver.parts import Thing, items, made, part, words
from sluice.sim.apiserver.refusals import invalid_value, required
from sluice.sim.apiserver.rules import Predicate
from sluice.sim.apiserver.schemas import structural
from sluice.sim.apiserver.shapes import from_schema
from sluice.sim.apiserver.status import Refused
from sluice.sim.apiserver.store import Store, Stored
from sluice.sim.apiserver.strategies import Strategy
from sluice.sim.apiserver.writes import Write
from sluice.sim.apiserver.writing import Writer

RESOURCE = "customresourcedefinitions.apiextensions.k8s.io"
_FIXED = ("group", "scope", "names.plural", "names.kind")
_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


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


class Definitions:
    """Keeps what is served in step with the definitions that are stored."""

    def __init__(
        self, kinds: Kinds, store: Store, *, writer: Writer, rules: Mapping[str, Predicate]
    ) -> None:
        self._kinds = kinds
        self._store = store
        self._writer = writer
        self._rules = rules

    def adopt(self, thing: Mapping[str, Any]) -> None:
        """Serve what it says from now on."""
        spec: Thing = thing["spec"]
        self._kinds.remove(spec["group"], spec["names"]["plural"])
        for kind in served(thing, self._rules):
            self._kinds.add(kind)

    def establish(self, live: Stored) -> None:
        """Its names are accepted, and it is served."""
        at = self._writer.now()
        accepted = condition("NamesAccepted", "NoConflicts", "no conflicts found", at=at)
        told = "the initial names have been accepted"
        established = condition("Established", "InitialNamesAccepted", told, at=at)

        def changed(thing: Thing) -> Thing:
            status = {
                **thing["status"],
                "conditions": [accepted, established],
                "acceptedNames": thing["spec"]["names"],
            }
            return {**thing, "status": status}

        into = Write(
            kind=self._own(), name=live.name, subresource="status", manager="kube-apiserver"
        )
        self._writer.update(into, live, changed)

    def begin_end(self, thing: Thing) -> Thing:
        """The definition as it waits for the last of its objects."""
        at = self._writer.now()
        told = "CustomResource deletion is in progress"
        ending = condition("Terminating", "InstanceDeletionInProgress", told, at=at)
        metadata = {
            **thing["metadata"],
            "deletionTimestamp": at,
            "finalizers": [*words(thing, "metadata", "finalizers"), _CLEANUP],
        }
        conditions = [*items(thing, "status", "conditions"), ending]
        status = {**part(thing, "status"), "conditions": conditions}
        return {**thing, "metadata": metadata, "status": status}

    def ended(self, thing: Mapping[str, Any]) -> bool:
        """Whether nothing keeps it any more; then its kind is served no longer."""
        spec: Thing = thing["spec"]
        kind = self.kind_of(thing)
        if kind is not None and len(self._store.shelf(kind)):
            return False
        if set(words(thing, "metadata", "finalizers")) - {_CLEANUP}:
            return False
        self._kinds.remove(spec["group"], spec["names"]["plural"])
        return True

    def kind_of(self, thing: Mapping[str, Any]) -> Kind | None:
        """The kind that a definition makes, in any version."""
        spec: Thing = thing["spec"]
        return self._kinds.by_resource(spec["group"], spec["names"]["plural"])

    def of(self, kind: Kind) -> Mapping[str, Any] | None:
        """The definition that made a kind."""
        stored = self._store.shelf(self._own()).get("", kind.resource)
        return None if stored is None else decoded(stored.raw)

    def stored(self, thing: Mapping[str, Any]) -> tuple[Kind, Stored | None]:
        """A definition as it is in the store."""
        own = self._own()
        return own, self._store.shelf(own).get("", thing["metadata"]["name"])

    def _own(self) -> Kind:
        kind = self._kinds.by_path("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        if kind is None:
            raise LookupError("definitions themselves are always served")
        return kind


def condition(kind: str, reason: str, message: str, *, at: str) -> Thing:
    """One that is so."""
    return {
        "type": kind,
        "status": "True",
        "lastTransitionTime": at,
        "reason": reason,
        "message": message,
    }


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
