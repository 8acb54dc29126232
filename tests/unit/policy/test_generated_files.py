"""Files generated from the model are up to date, and stale ones are reported."""

import shutil
import subprocess
import sys
from pathlib import Path

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
    read = [yaml.safe_load(file.read_text()) for file in files]
    assert {crd["metadata"]["name"]: crd for crd in read} == crd_manifests()


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
