"""A file with policies, as people apply it: YAML or JSON, of one object or several. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from libs.ctl.failures import ExitCode, Failure
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY
from libs.policy.kinds.common import Kind
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from libs.policy.plain_yaml import RefusedYaml, load_documents
from libs.policy.pool import pool_key

PLANNED_KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind for kind in (CLUSTER_POLICY, NVIDIA_DRIVER)
}
"""The kinds of policy that a plan can be made of."""

_MAX_LENGTH: Final = 1 << 25
_MAX_VALUES: Final = 1_000_000
"""Beyond those of a ConfigMap: a file may have all objects of an installation."""

JsonObject = Mapping[str, Any]


class FilePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy in the file."""

    kind: Kind
    name: str
    manifest: JsonObject

    @property
    def title(self) -> str:
        return f"{self.kind.name} {self.name}"

    @property
    def key(self) -> str:
        """The key of its pool."""
        return pool_key(self.kind.name, self.name)


class PolicyFile(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of a file."""

    name: str
    """How people know the file."""
    policies: tuple[FilePolicy, ...]
    left_out: tuple[str, ...] = ()
    """Its other objects, which a plan takes nothing from."""

    def refusal(self, problem: str, code: ExitCode = ExitCode.WRONG_ARGUMENTS) -> Failure:
        """Return the failure that a problem of the file means."""
        return Failure(code, f"{self.name}: {problem}")


def parse_policy_file(name: str, content: bytes) -> PolicyFile:
    """Return the policies of a file; fail if it has none, or cannot be read as objects."""
    policies: dict[str, FilePolicy] = {}
    left_out: list[str] = []
    for where, found in _objects(name, content):
        api_version, kind = _text(found, "apiVersion"), _text(found, "kind")
        named = _text(found.get("metadata"), "name")
        for field, value in (("apiVersion", api_version), ("kind", kind)):
            if not value:
                raise _refusal(name, f"{where}: {field} is not set: an object needs it")
        planned = PLANNED_KINDS.get(kind)
        if planned is None or api_version.partition("/")[0] != planned.group:
            left_out.append(f"{kind} {named}".rstrip())
            continue
        if not named:
            raise _refusal(name, f"{where}: metadata.name of the {kind} is not set")
        policy = FilePolicy(kind=planned, name=named, manifest=found)
        if policy.key in policies:
            raise _refusal(name, f"{policy.title} is in it twice: remove one of the two")
        policies[policy.key] = policy
    if not policies:
        others = f"; it has {', '.join(left_out)}" if left_out else ""
        kinds = " nor ".join(f"{kind.name} ({kind.api_version})" for kind in PLANNED_KINDS.values())
        raise _refusal(name, f"it has neither {kinds}{others}")
    return PolicyFile(name=name, policies=tuple(policies.values()), left_out=tuple(left_out))


def _text(found: Any, field: str) -> str:
    """Return a field that identifies an object; empty where it is no text."""
    value = cast("JsonObject", found).get(field) if isinstance(found, Mapping) else None
    return value if isinstance(value, str) else ""


def _objects(name: str, content: bytes) -> Iterator[tuple[str, JsonObject]]:
    """Yield each object of the file, those of lists one by one, and where it is."""
    for number, document in enumerate(_documents(name, content), start=1):
        if document is None:
            continue
        where = f"document {number}"
        if not isinstance(document, Mapping):
            raise _refusal(name, f"{where} is not an object: write apiVersion, kind and metadata")
        found = cast("JsonObject", document)
        items = found.get("items")
        if not (_text(found, "kind").endswith("List") and isinstance(items, list)):
            yield where, found
            continue
        for index, item in enumerate(cast("list[Any]", items)):
            if not isinstance(item, Mapping):
                raise _refusal(name, f"{where}: items[{index}] is not an object")
            yield f"{where}, items[{index}]", cast("JsonObject", item)


def _documents(name: str, content: bytes) -> list[Any]:
    """Return the documents as JSON data."""
    if content.lstrip()[:1] in (b"{", b"["):
        try:
            return [msgspec.json.decode(content)]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # flow style of YAML, or an error whose place YAML knows
    try:
        loaded = load_documents(content, max_length=_MAX_LENGTH, max_values=_MAX_VALUES)
        return cast("list[Any]", msgspec.json.decode(msgspec.json.encode(loaded)))
    except RefusedYaml as error:
        where = f"line {error.line}, column {error.column}: " if error.line else ""
        raise _refusal(name, f"{where}{error.problem}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise _refusal(name, f"it cannot be written as JSON: {error}") from error


def _refusal(name: str, problem: str) -> Failure:
    return Failure(ExitCode.WRONG_ARGUMENTS, f"{name}: {problem}")
