"""Parse one object from the API server or a file into a policy.

Each field is decoded on its own, so one pass reports every problem as a finding; parsing never
raises. Relations between several objects are in `libs.policy.pools`.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeAlias, cast

import msgspec

from libs.policy.decoder import INVALID, PolicyDecoder
from libs.policy.findings import Finding, errors_of
from libs.policy.kinds import KINDS
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.common import Metadata
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.kinds.nvidia_driver import NvidiaDriver
from libs.policy.kinds.rollout import Rollout
from libs.policy.kinds.strategy import RolloutStrategy
from libs.policy.validation import validate

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
        return errors_of(self.findings)


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
        decoder.reject(kind, "kind", "is not a kind of policy", f"write one of {names}")
        return ParsedPolicy(kind=kind, policy=None, findings=tuple(decoder.findings))
    if not isinstance(obj, Mapping):
        decoder.reject(obj, known.name, "is not an object", "write metadata and spec")
        return ParsedPolicy(kind=kind, policy=None, findings=tuple(decoder.findings))
    manifest = cast("Mapping[Any, Any]", obj)
    for field, wanted in (("apiVersion", known.api_version), ("kind", known.name)):
        if manifest.get(field) not in (None, wanted):
            decoder.reject(manifest[field], field, f"is not {wanted}", f"write {wanted}")
    metadata = _metadata(manifest.get("metadata"))
    spec = manifest.get("spec")
    decoded_spec = decoder.decode_struct({} if spec is None else spec, known.spec_shape, "spec")
    policy: Policy = known.object_type(
        metadata=metadata, spec=known.spec() if decoded_spec is INVALID else decoded_spec
    )
    findings = validate(policy, decoder.findings)
    return ParsedPolicy(kind=kind, policy=policy, findings=findings)


def _metadata(given: Any) -> Metadata:
    """Return the metadata fields that have the right type; the API server validates the rest."""
    if not isinstance(given, Mapping):
        return Metadata()
    entries = cast("Mapping[Any, Any]", given)
    values: dict[str, Any] = {name: entries.get(key) for name, (key, _) in _METADATA.items()}
    return Metadata(
        **{name: value for name, value in values.items() if type(value) is _METADATA[name][1]}
    )


_METADATA: Final = {
    field.name: (field.encode_name, field.type) for field in msgspec.structs.fields(Metadata)
}
"""JSON name and type by attribute."""
