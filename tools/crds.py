"""Write the CRD manifests and docs/policies.md from the model of the policies.

With `--check`, list stale and superfluous files instead.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import generated
import policies
from struct_docs import field_docstrings

from libs.policy.crds import crd_manifests
from libs.policy.kinds import DEFINED_KINDS
from libs.policy.shapes import Shape

FOLDER = "deploy/chart/crds"
PAGE = "docs/policies.md"
HEADER = "# Made from libs.policy by `make fix`; edit the model, not this file.\n"

_UNQUOTED = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.,;()=<> '-]*[A-Za-z0-9_/.,;()=<>'-]|[A-Za-z]")
_RESERVED = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


def yaml(value: Mapping[str, Any]) -> str:
    """Return plain data as readable YAML."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, child in cast("Mapping[str, Any]", value).items():
            yield from _entry(f"{_scalar(key)}:", child)
    else:
        for item in value:
            first, *rest = _lines(item) if isinstance(item, Mapping | list) else [_scalar(item)]
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)


def _entry(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        yield key
        yield from (f"  {line}" for line in _lines(value))
    elif isinstance(value, list) and value:
        yield key
        yield from _lines(value)
    else:
        yield f"{key} {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _UNQUOTED.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    return json.dumps(value, ensure_ascii=False)


def described_manifests() -> dict[str, dict[str, Any]]:
    """Return every definition, with the docstrings of fields that a contract declares."""
    manifests = crd_manifests()
    for kind in DEFINED_KINDS:
        (version,) = manifests[f"{kind.plural}.{kind.group}"]["spec"]["versions"]
        parts = version["schema"]["openAPIV3Schema"]["properties"]
        _describe(parts["spec"], kind.spec_shape)
        _describe(parts["status"], kind.status_shape)
    return manifests


def _describe(schema: dict[str, Any], shape: Shape | None) -> None:
    """Fill in the descriptions that the model leaves to the contract."""
    if shape is None:
        return
    for field in shape.fields:
        part = schema["properties"][field.name]
        part["description"] = part["description"] or _docstring(shape, field.attribute)
        _describe(part, field.shape)
    _describe(schema.get("items") or schema.get("additionalProperties") or {}, shape.items)


def _docstring(shape: Shape, attribute: str) -> str:
    assert shape.python_type is not None
    found = field_docstrings(shape.python_type).get(attribute)
    if not found:
        raise SystemExit(f"{shape.python_type.__name__}.{attribute} needs a docstring, for its CRD")
    return found


def expected_files() -> dict[str, str]:
    """Return the text of every generated file by path."""
    files = {
        f"{FOLDER}/{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml": HEADER + yaml(crd)
        for crd in described_manifests().values()
    }
    return {**files, PAGE: policies.page()}


def main(arguments: Sequence[str]) -> int:
    """Write the files, or list the stale ones; return the exit status."""
    parser = argparse.ArgumentParser(prog="tools/crds.py", description="Write CRDs and their page.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is stale")
    check = parser.parse_args(arguments).check
    files = expected_files()
    status = generated.write(files, check=check)
    for manifest in sorted((generated.ROOT / FOLDER).glob("*.yaml")):
        if f"{FOLDER}/{manifest.name}" not in files:
            print(f"{FOLDER}/{manifest.name} belongs to no CRD: remove it", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
