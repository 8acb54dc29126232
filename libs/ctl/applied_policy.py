"""A policy of a file as `kubectl apply` would leave it, and the fields that differ then. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from libs.ctl.policy_file import FilePolicy, JsonObject
from libs.kube.resources import CustomObject
from libs.policy.crds import CEL_RULES
from libs.policy.findings import Finding, quote_value
from libs.policy.manifests import ParsedPolicy, parse_manifest
from libs.policy.shapes import Field, JsonType, Shape

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_YOUNGEST: Final = "9999-12-31T23:59:59Z"
"""The creation time of an object that does not exist yet: all others take precedence."""
_SCALAR: Final = (bool, int, str, type(None))


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a policy that differs once the file is applied."""

    way: tuple[Field, ...]
    """The field, after the sections that it is in."""
    before: Any
    after: Any

    @property
    def field(self) -> Field:
        return self.way[-1]

    @property
    def path(self) -> str:
        return ".".join(("spec", *(each.name for each in self.way)))

    @property
    def no_effect_because(self) -> str:
        """Return why it has no effect in Sluice; empty: it has one."""
        reasons = (each.about.no_effect_because for each in reversed(self.way))
        return next(filter(None, reasons), "")

    def undone(self, spec: Any) -> Any:
        """Return a spec with the value that the field had before."""
        return _with_value(spec, self.way, self.before)

    def __str__(self) -> str:
        if not (isinstance(self.before, _SCALAR) and isinstance(self.after, _SCALAR)):
            return self.path
        return f"{self.path} {_shown(self.after)} (now {_shown(self.before)})"


def _shown(value: Any) -> str:
    return "unset" if value in (None, "") else quote_value(value)


def parse_applied(policy: FilePolicy, live: CustomObject | None) -> ParsedPolicy:
    """Return the policy once the file is applied to what is in the cluster."""
    metadata: dict[str, Any] = {"name": policy.name, "creationTimestamp": _YOUNGEST}
    if live is not None:
        found = live.metadata
        metadata |= {
            "uid": found.uid,
            "generation": found.generation,
            "creationTimestamp": found.creation_timestamp,
            "deletionTimestamp": found.deletion_timestamp,
        }
    spec = applied_spec(policy, live)
    return parse_manifest(policy.kind.name, {**policy.manifest, "metadata": metadata, "spec": spec})


def applied_spec(policy: FilePolicy, live: CustomObject | None) -> Any:
    """Return the spec once the file is applied to what is in the cluster."""
    wanted = policy.manifest.get("spec")
    if live is None or not isinstance(wanted, Mapping | None):
        return wanted
    return merged(as_object(live.spec), as_object(wanted), _last_applied(live))


def merged(live: JsonObject, wanted: JsonObject, before: JsonObject) -> dict[str, Any]:
    """Return the live fields with the wanted ones.

    `before` are those that were applied last: what is gone from them since is removed, and what
    others wrote stays.
    """
    found = {key: value for key, value in live.items() if key in wanted or key not in before}
    for key, value in wanted.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            found[key] = merged(
                as_object(live.get(key)), as_object(value), as_object(before.get(key))
            )
        else:
            found[key] = value
    return found


def as_object(value: Any) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, Mapping) else {}


def _last_applied(live: CustomObject) -> JsonObject:
    """Return the spec that was applied last; empty: none is known."""
    text = live.metadata.annotations.get(_LAST_APPLIED, "")
    try:
        return as_object(as_object(msgspec.json.decode(text)).get("spec"))
    except msgspec.DecodeError:
        return {}


def changed_fields(
    shape: Shape, before: Any, after: Any, way: tuple[Field, ...] = ()
) -> Iterator[FieldChange]:
    """Yield the fields that differ between two specs of this shape, or sections at `way`."""
    for field in shape.fields:
        old, new = (getattr(each, field.attribute) for each in (before, after))
        if old == new:
            continue
        if field.shape.type is JsonType.OBJECT and old is not None and new is not None:
            yield from changed_fields(field.shape, old, new, (*way, field))
        else:
            yield FieldChange(way=(*way, field), before=old, after=new)


def _with_value(struct: Any, way: Sequence[Field], value: Any) -> Any:
    name, below = way[0].attribute, way[1:]
    if below:
        value = _with_value(getattr(struct, name), below, value)
    return msgspec.structs.replace(struct, **{name: value})


def broken_rules(changes: Iterable[FieldChange]) -> Iterator[Finding]:
    """Yield the rules of the API server about changes that these break."""
    for each in changes:
        for rule in each.field.about.rules:
            if not CEL_RULES[rule.text](each.after, each.before):
                problem = f"is refused: {rule.message}"
                yield Finding(field=each.path, value=quote_value(each.after), problem=problem)
