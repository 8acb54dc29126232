"""The command installed from a checkout, which is not needed afterwards."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")


def uv(*words: str) -> None:
    subprocess.run([UV, *words, "--offline", "--quiet"], cwd=ROOT, check=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install .` adds to an environment; what it depends on is that of the checkout."""
    folder = tmp_path_factory.mktemp("installed")
    uv("build", "--wheel", "--out-dir", str(folder))
    (wheel,) = folder.glob("*.whl")
    uv("pip", "install", "--no-deps", "--target", str(folder / "site"), str(wheel))
    return folder / "site"


def test_both_names_of_the_command_run_without_the_checkout(site: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(site)}
    for name in ("sluice", "kubectl-sluice"):
        command = [sys.executable, site / "bin" / name, "version"]
        done = subprocess.run(command, cwd=site, env=environ, capture_output=True, check=True)
        assert done.stdout.startswith(b"sluice "), done
    where = "import libs.ctl; print(libs.ctl.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", where], cwd=site, env=environ, capture_output=True, check=True
    )
    assert Path(done.stdout.decode().strip()).is_relative_to(site)
    assert (site / "libs/ctl/web/page/index.html").exists()
