"""Writes what is made from the model of the policies: the CRDs' manifests, and docs/policies.md.

With `--check`: says which are stale, or should not be there. Knows how YAML is written, and nothing
of what the policies mean.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import policies

from libs.policy.crds import crd_manifests

ROOT = Path(__file__).parents[1]
FOLDER = "deploy/chart/crds"
PAGE = "docs/policies.md"
FIRST = "# Made from libs.policy by `make fix`; edit the model, not this file.\n"

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.,;()=<> '-]*[A-Za-z0-9_/.,;()=<>'-]|[A-Za-z]")
_NO_TEXT = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


def yaml(value: Mapping[str, Any]) -> str:
    """Plain data as YAML that a person can read."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, below in cast("Mapping[str, Any]", value).items():
            yield from _entry(f"{_scalar(key)}:", below)
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
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)


def wanted() -> dict[str, str]:
    """Every file by its path, as it should be."""
    files = {
        f"{FOLDER}/{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml": FIRST + yaml(crd)
        for crd in crd_manifests().values()
    }
    return {**files, PAGE: policies.page()}


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with `--check` name those that are stale."""
    parser = argparse.ArgumentParser(prog="tools/crds.py", description="Write CRDs and their page.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is stale")
    check = parser.parse_args(arguments).check
    files = wanted()
    status = 0
    for path, text in files.items():
        there = ROOT / path
        if there.exists() and there.read_text() == text:
            continue
        if check:
            print(f"{path} is stale: make fix writes it", file=sys.stderr)
            status = 1
        else:
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_text(text)
            print(f"wrote {path}")
    for found in sorted((ROOT / FOLDER).glob("*.yaml")):
        if f"{FOLDER}/{found.name}" not in files:
            print(f"{FOLDER}/{found.name} is of no kind: remove it", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
