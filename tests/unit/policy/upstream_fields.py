"""The fields of the GPU Operator's CRDs by version, as facts: path, type, allowed values, default.

The files in `upstream/<version>` hold one field per line: its path and the limits of its values.
To add a version, run this module with its CRD files:

    python -m tests.unit.policy.upstream_fields v26.7.0 nvidia.com_clusterpolicies.yaml ...
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

Object = dict[str, Any]
FOLDER = Path(__file__).parent / "upstream"
_LIMITS = ("enum", "default", "minimum", "maximum", "pattern")


def fields_of(schema: Object) -> dict[str, Object]:
    """Return the type and limits of every field below `spec` in the schema of a kind."""
    return dict(_fields(schema["properties"]["spec"], "spec"))


def upstream_fields(version: str, kind: str) -> dict[str, Object]:
    """Return the fields of a kind in a version of the GPU Operator."""
    lines = (FOLDER / version / f"{kind}.tsv").read_text().splitlines()
    return {
        path: msgspec.json.decode(limits) for path, limits in (line.split("\t") for line in lines)
    }


def _fields(schema: Object, path: str) -> Iterator[tuple[str, Object]]:
    if "properties" in schema:
        for name, field in schema["properties"].items():
            yield from _fields(field, f"{path}.{name}")
    elif schema.get("type") == "array":
        yield from _fields(schema["items"], f"{path}[]")
    elif "additionalProperties" in schema:
        yield from _fields(schema["additionalProperties"], f"{path}.*")
    else:
        is_mixed = schema.get("x-kubernetes-int-or-string", False)
        kind = "int-or-string" if is_mixed else schema["type"]
        limits = {name: schema[name] for name in _LIMITS if name in schema}
        yield path, {"type": kind, **limits}


def main(arguments: Sequence[str]) -> None:
    version, *files = arguments
    for file in files:
        crd = yaml.safe_load(Path(file).read_text())
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        lines = [
            f"{path}\t{msgspec.json.encode(limits).decode()}\n"
            for path, limits in sorted(fields_of(schema).items())
        ]
        target = FOLDER / version / f"{crd['spec']['names']['kind']}.tsv"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
