"""Parse one object from the API server or a file into a policy, and values back into JSON.

Parsing never raises: every problem becomes a finding. Relations between several objects are in
`libs.policy.pools`.
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
    """A parsed object and the findings about it."""

    kind: str
    policy: Policy | None
    """None if the kind is unknown or the manifest is not an object."""
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return the findings that keep the object from being carried out."""
        return tuple(found for found in self.findings if found.severity is Severity.ERROR)


class PolicyMetadata(Protocol):
    """The metadata fields that a policy is parsed from."""

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
    fields = {
        "name": metadata.name,
        "uid": metadata.uid,
        "generation": metadata.generation,
        "creationTimestamp": metadata.creation_timestamp,
        "deletionTimestamp": metadata.deletion_timestamp,
    }
    return parse_manifest(kind, {"kind": kind, "metadata": fields, "spec": spec})


def parse_manifest(kind: str, obj: object) -> ParsedPolicy:
    """Parse an object as a policy of this kind.

    A field that does not fit keeps its default and adds an error. A policy with errors must not be
    carried out.
    """
    known = KINDS.get(kind)
    decoder = PolicyDecoder()
    if known is None:
        names = ", ".join(KINDS)
        decoder.add_finding(
            "kind", quote_value(kind), "is not a kind of policy", f"write one of {names}"
        )
        return ParsedPolicy(kind=kind, policy=None, findings=tuple(decoder.findings))
    if not isinstance(obj, Mapping):
        decoder.add_finding(
            known.name, quote_value(obj), "is not an object", "write metadata and spec"
        )
        return ParsedPolicy(kind=kind, policy=None, findings=tuple(decoder.findings))
    manifest = cast("Mapping[Any, Any]", obj)
    for field, wanted in (("apiVersion", known.api_version), ("kind", known.name)):
        if manifest.get(field) not in (None, wanted):
            decoder.add_finding(
                field, quote_value(manifest[field]), f"is not {wanted}", f"write {wanted}"
            )
    metadata = _metadata(manifest.get("metadata"))
    spec = manifest.get("spec")
    decoded_spec = decoder.decode_struct({} if spec is None else spec, known.spec_shape, "spec")
    policy: Policy = known.object_type(
        metadata=metadata, spec=known.spec() if decoded_spec is INVALID else decoded_spec
    )
    return ParsedPolicy(
        kind=kind,
        policy=policy,
        findings=(*soften_findings(policy, decoder.findings), *validate(policy)),
    )


def to_json(value: Any, shape: Shape | None) -> Any:
    """Return a value of this shape as JSON data."""
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
        field_value = getattr(value, field.attribute)
        if field_value is not None and (field_value != field.default or field.about.required):
            fields[field.name] = to_json(field_value, field.shape)
    return fields


def _metadata(given: Any) -> Metadata:
    """Return the metadata fields that have the right type; the API server validates the rest."""
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
