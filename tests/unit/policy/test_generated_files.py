"""Files generated from the model are up to date, and stale ones are reported."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from libs.policy.crds import crd_manifests

REPOSITORY = Path(__file__).parents[3]
CRDS = "deploy/chart/crds"


def run_generator(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "tools/crds.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout that contains only the generated files and their generator."""
    for directory in ("tools", "docs", CRDS):
        shutil.copytree(REPOSITORY / directory, tmp_path / directory)
    return tmp_path


def test_generated_files_are_up_to_date() -> None:
    checked = run_generator(REPOSITORY, "--check")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_crd_files_equal_the_model() -> None:
    files = sorted((REPOSITORY / CRDS).glob("*.yaml"))
    read = {crd["metadata"]["name"]: crd for crd in map(_manifest, files)}
    model = crd_manifests()
    for name, crd in read.items():
        _take_docstrings(model[name], crd)
    assert read == model


def _manifest(file: Path) -> dict[str, Any]:
    return yaml.safe_load(file.read_text())


def _take_docstrings(model: Any, crd: Any) -> None:
    """Take from the file what the model leaves to the docstring of a contract's field."""
    if isinstance(model, dict):
        for key, value in cast("dict[str, Any]", model).items():
            if key == "description" and value == "":
                assert crd[key], "neither the model nor the contract describes this field"
                model[key] = crd[key]
            _take_docstrings(value, crd[key])
    elif isinstance(model, list):
        for item, read in zip(cast("list[Any]", model), crd, strict=True):
            _take_docstrings(item, read)


def test_stale_and_leftover_files_are_reported_and_fixed(copy: Path) -> None:
    stale, page = copy / CRDS / "sluice.dev_rollouts.yaml", copy / "docs/policies.md"
    fresh = stale.read_text()
    stale.write_text(fresh.replace("Freeze", "Stop"))
    page.unlink()
    left = copy / CRDS / "sluice.dev_others.yaml"
    left.write_text("{}")
    checked = run_generator(copy, "--check")
    assert checked.returncode == 1
    assert checked.stderr.splitlines() == [
        f"{CRDS}/sluice.dev_rollouts.yaml is stale: run `make fix`",
        "docs/policies.md is stale: run `make fix`",
        f"{CRDS}/sluice.dev_others.yaml belongs to no CRD: remove it",
    ]
    left.unlink()
    assert run_generator(copy).returncode == 0
    assert stale.read_text() == fresh
    assert run_generator(copy, "--check").returncode == 0
