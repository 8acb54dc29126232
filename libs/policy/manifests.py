"""From an object as it came from the API server or a file to a policy, and back.

Whatever it gets, it does not raise: what cannot be read is said, field by field, and all at once.
Knows one object at a time; what follows from several together is `libs.policy.pools`.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, cast

import msgspec

from libs.policy.decoder import INVALID, PolicyDecoder
from libs.policy.findings import Finding, Severity, quote_value
from libs.policy.kinds import KINDS
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.common import Metadata
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.kinds.nvidia_driver import NvidiaDriver
from libs.policy.kinds.rollout import Rollout
from libs.policy.kinds.strategy import RolloutStrategy
from libs.policy.shapes import JsonType, Shape
from libs.policy.validation import soften_findings, validate

Policy: TypeAlias = ClusterPolicy | NvidiaDriver | GpuClusterPolicy | RolloutStrategy | Rollout


class ParsedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What one object says."""

    kind: str
    policy: Policy | None
    """None: there was nothing to read it from."""
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What keeps it from being carried out."""
        return tuple(found for found in self.findings if found.severity is Severity.ERROR)


class PolicyMetadata(Protocol):
    """What of an object's metadata counts here."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def creation_timestamp(self) -> str: ...
    @property
    def deletion_timestamp(self) -> str | None: ...


def parse_object(kind: str, *, metadata: PolicyMetadata, spec: object) -> ParsedPolicy:
    """A policy that is there already, from the parts of its object; otherwise as `read`."""
    told = {
        "name": metadata.name,
        "uid": metadata.uid,
        "generation": metadata.generation,
        "creationTimestamp": metadata.creation_timestamp,
        "deletionTimestamp": metadata.deletion_timestamp,
    }
    return parse_manifest(kind, {"kind": kind, "metadata": told, "spec": spec})


def parse_manifest(kind: str, obj: object) -> ParsedPolicy:
    """The object as a policy of this kind. A field that does not fit keeps its default: an error
    among the findings says so, and a policy with errors is not to be carried out.
    """
    known = KINDS.get(kind)
    converter = PolicyDecoder()
    if known is None:
        names = ", ".join(KINDS)
        converter.add_finding(
            "kind", quote_value(kind), "is not a kind of policy", f"write one of {names}"
        )
        return ParsedPolicy(kind=kind, policy=None, findings=tuple(converter.findings))
    if not isinstance(obj, Mapping):
        converter.add_finding(
            known.name, quote_value(obj), "is not an object", "write metadata and spec"
        )
        return ParsedPolicy(kind=kind, policy=None, findings=tuple(converter.findings))
    given = cast("Mapping[Any, Any]", obj)
    for field, wanted in (("apiVersion", known.api_version), ("kind", known.name)):
        if given.get(field) not in (None, wanted):
            converter.add_finding(
                field, quote_value(given[field]), f"is not {wanted}", f"write {wanted}"
            )
    metadata = _metadata(given.get("metadata"))
    spec = given.get("spec")
    made = converter.decode_struct({} if spec is None else spec, known.spec_shape, "spec")
    policy: Policy = known.object_type(
        metadata=metadata, spec=known.spec() if made is INVALID else made
    )
    return ParsedPolicy(
        kind=kind,
        policy=policy,
        findings=(*soften_findings(policy, converter.findings), *validate(policy)),
    )


def to_manifest(policy: Policy) -> dict[str, Any]:
    """The policy as an object that can be written; what is at its default only if it must be."""
    kind = next(kind for kind in KINDS.values() if isinstance(policy, kind.object_type))
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": msgspec.to_builtins(policy.metadata),
        "spec": to_json(policy.spec, kind.spec_shape),
    }


def to_json(value: Any, shape: Shape | None) -> Any:
    """A value of this shape as JSON has it."""
    if shape is None or shape.type is JsonType.FREE_FORM:
        return value
    if shape.type is JsonType.LIST:
        return [to_json(item, shape.items) for item in value]
    if shape.type is JsonType.MAP:
        return {key: to_json(item, shape.items) for key, item in value.items()}
    if shape.type is not JsonType.OBJECT:
        return value.value if shape.python_type else value
    fields: dict[str, Any] = {}
    for field in shape.fields:
        given = getattr(value, field.attribute)
        if given is not None and (given != field.default or field.about.required):
            fields[field.name] = to_json(given, field.shape)
    return fields


def _metadata(given: Any) -> Metadata:
    """What is there of it; the API server sees to it that it is right."""
    if not isinstance(given, Mapping):
        return Metadata()
    entries = cast("Mapping[Any, Any]", given)

    def text(name: str) -> str:
        value = entries.get(name)
        return value if isinstance(value, str) else ""

    generation = entries.get("generation")
    return Metadata(
        name=text("name"),
        uid=text("uid"),
        generation=generation if type(generation) is int else 0,
        creation_timestamp=text("creationTimestamp"),
        deletion_timestamp=text("deletionTimestamp"),
    )
