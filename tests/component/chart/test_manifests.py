"""`make manifests`: what Helm renders, as files for kubectl, with its hooks apart."""

import subprocess
import sys
from pathlib import Path

import pytest

from libs.policy.crds import crd_manifests
from tests.component.chart.conftest import Render
from tests.component.chart.rendered import CHART, HOOK, VALUES, Object, is_hook, parsed

PROGRAM = CHART.parents[1] / "tools/manifests.py"
PLAIN = ["1-definitions.yaml", "2-setup.yaml", "3-sluice.yaml", "4-test.yaml", "5-uninstall.yaml"]

SOME = [
    file for file in VALUES if file.stem in ("cert_manager", "definitions_removed", "monitored")
]

pytestmark = pytest.mark.usefixtures("helm")


def make(folder: Path, *options: str) -> dict[str, list[Object]]:
    """Run `make manifests`; return the objects of each file that it wrote."""
    command = [sys.executable, str(PROGRAM), "--output", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {file.name: parsed(file.read_text()) for file in sorted(folder.iterdir())}


@pytest.mark.parametrize("file", SOME, ids=[file.stem for file in SOME])
def test_the_files_have_what_helm_renders(tmp_path: Path, render: Render, file: Path) -> None:
    written = make(tmp_path, "--values", str(file))
    objects = [each for found in written.values() for each in found]
    assert sorted(objects, key=str) == sorted(
        render("--values", str(file), "--include-crds"), key=str
    )


def test_what_removes_sluice_is_applied_with_nothing_else(tmp_path: Path) -> None:
    cleanup = ("--set", "operator.cleanupCRD=true")
    written = make(tmp_path, *cleanup)
    assert list(written) == [*PLAIN, "6-uninstall-definitions.yaml"]
    assert {each["metadata"]["name"] for each in written["1-definitions.yaml"]} == set(
        crd_manifests()
    )
    assert not any(is_hook(each) for each in written["3-sluice.yaml"])
    hooks = {
        name: {each["metadata"]["annotations"][HOOK] for each in found}
        for name, found in written.items()
        if name not in ("1-definitions.yaml", "3-sluice.yaml")
    }
    assert hooks == {
        "2-setup.yaml": {"pre-install,pre-upgrade,pre-rollback"},
        "4-test.yaml": {"test"},
        "5-uninstall.yaml": {"pre-delete"},
        "6-uninstall-definitions.yaml": {"post-delete"},
    }
    assert [each["kind"] for each in written["2-setup.yaml"]][-1] == "Job"


def test_a_file_of_an_earlier_call_goes(tmp_path: Path) -> None:
    make(tmp_path, "--set", "operator.cleanupCRD=true")
    assert list(make(tmp_path)) == PLAIN


def test_options_go_to_helm(tmp_path: Path) -> None:
    objects = make(tmp_path, "--namespace", "elsewhere")["3-sluice.yaml"]
    assert {each["metadata"]["namespace"] for each in objects if each["kind"] == "Deployment"} == {
        "elsewhere"
    }


def test_wrong_values_are_refused_in_words(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), "--output", str(tmp_path), "--set", "nats.replicas=2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "make manifests: `helm template` refuses:" in done.stderr
    assert "/nats/replicas" in done.stderr
    assert list(tmp_path.iterdir()) == []
