"""`make manifests`: write what the chart installs as files for `kubectl apply`, by the step.

Helm renders them, with any option of `helm template`. Its hooks become files of their own: applied
together with the rest, the hook that removes Sluice would run at once.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from libs.testing import helm
from libs.testing.go_build import NotBuilt

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "deploy/chart"
OUTPUT: Final = ROOT / ".cache/manifests"
NAMESPACE: Final = "gpu-operator"

DEFINITIONS: Final = "1-definitions.yaml"
SETUP: Final = "2-setup.yaml"
SLUICE: Final = "3-sluice.yaml"
TEST: Final = "4-test.yaml"
UNINSTALL: Final = "5-uninstall.yaml"
UNINSTALL_DEFINITIONS: Final = "6-uninstall-definitions.yaml"
FILES: Final = (DEFINITIONS, SETUP, SLUICE, TEST, UNINSTALL, UNINSTALL_DEFINITIONS)

_HOOK: Final = "helm.sh/hook"
_WEIGHT: Final = "helm.sh/hook-weight"
_OF_HOOK: Final = {
    "pre-install": SETUP,
    "test": TEST,
    "pre-delete": UNINSTALL,
    "post-delete": UNINSTALL_DEFINITIONS,
}
_SEPARATOR: Final = re.compile(r"^---\s*$", re.MULTILINE)


def render(program: Path, options: Sequence[str]) -> str:
    """Return what `helm template` renders, definitions included; fail with its own words."""
    namespace = () if _names_namespace(options) else ("--namespace", NAMESPACE)
    done = subprocess.run(
        [*(program, "template", "sluice", CHART, "--include-crds"), *namespace, *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"`helm template` refuses: {done.stderr.strip()}")
    return done.stdout


def _names_namespace(options: Sequence[str]) -> bool:
    return any(each.partition("=")[0] in ("--namespace", "-n") for each in options)


def by_file(rendered: str) -> dict[str, str]:
    """Return the text of each file by name, without files that would be empty."""
    documents: dict[str, list[tuple[int, str]]] = {name: [] for name in FILES}
    for text in _SEPARATOR.split(rendered):
        obj = yaml.safe_load(text)
        if obj:
            name, weight = _place(obj)
            documents[name].append((weight, f"---\n{text.strip()}\n"))
    return {
        name: "".join(text for _, text in sorted(found, key=lambda each: each[0]))
        for name, found in documents.items()
        if found
    }


def _place(obj: Mapping[str, Any]) -> tuple[str, int]:
    """Return the file of an object, and its rank there."""
    annotations: Mapping[str, str] = obj["metadata"].get("annotations") or {}
    if hook := annotations.get(_HOOK):
        return _OF_HOOK[hook.partition(",")[0]], int(annotations.get(_WEIGHT, "0"))
    return (DEFINITIONS if obj["kind"] == "CustomResourceDefinition" else SLUICE), 0


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files, and remove those of an earlier call that are no longer rendered."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if name in files:
            (folder / name).write_text(files[name])
        else:
            (folder / name).unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> int:
    """Write the manifests; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="make manifests",
        description="Write the manifests of the chart for kubectl.",
        epilog="All other options go to `helm template`: --namespace, --values, --set, …",
        allow_abbrev=False,
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder (%(default)s)")
    known, options = parser.parse_known_args(arguments)
    try:
        program = helm.build(os.environ, report=lambda line: print(line, file=sys.stderr)) / "helm"
        files = by_file(render(program, options))
    except (NotBuilt, ValueError) as error:
        print(f"make manifests: {error}", file=sys.stderr)
        return 1
    write(known.output, files)
    print(f"docs/install.md says how to apply them: {known.output}/")
    for name in files:
        print(f"  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
