"""Helm and `sluice upgrade start` on one field of the real API server: neither takes it unasked."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.ctl.failures import ExitCode
from libs.testing.realkube.cluster import RealKube
from tests.component.chart.conftest import run
from tests.component.chart.rendered import CHART
from tests.component.ctl.world import NO_ADDRESSES, Ended, run_command

RELEASE = ("policy-alone", "--namespace", "default")
FIRST, SECOND, THIRD = "570.86.15", "580.95.05", "590.48.01"


class Administrator:
    """Who uses Helm and `sluice`, each with the same kubeconfig."""

    def __init__(self, helm: Path, kube: RealKube, chart: Path) -> None:
        self._helm = helm
        self._kubeconfig = str(kube.kubeconfig())
        self._chart = chart

    def helm(self, command: str, version: str, *options: str) -> str:
        name, *namespace = RELEASE
        values = ("--set", f"driver.version={version}")
        return self._run(command, name, str(self._chart), *namespace, *values, *options)

    def uninstall(self) -> str:
        return self._run("uninstall", *RELEASE)

    def start(self, version: str, *options: str) -> Ended:
        environ = {**NO_ADDRESSES, "KUBECONFIG": self._kubeconfig}
        return run_command("upgrade", "start", version, "--yes", *options, **environ)

    def _run(self, *arguments: str) -> str:
        return run(self._helm, "--kubeconfig", self._kubeconfig, *arguments)


@pytest.fixture
def administrator(helm: Path, definitions: RealKube, tmp_path: Path) -> Iterator[Administrator]:
    """Helm has made the ClusterPolicy of the chart, and nothing else of it."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns("crds"))
    for template in (chart / "templates").iterdir():
        if template.name not in ("policy.yaml", "_helpers.tpl"):
            template.unlink()
    administrator = Administrator(helm, definitions, chart)
    administrator.helm("install", FIRST)
    yield administrator
    administrator.uninstall()


@pytest.mark.usefixtures("cluster")
def test_helm_goes_on_after_a_start_that_was_refused(administrator: Administrator) -> None:
    refused = administrator.start(SECOND)
    assert refused.code == ExitCode.REFUSED
    assert "managed by Helm, as release policy-alone in the namespace default" in refused.err
    assert f"set `driver.version: {SECOND}` in the values and run `helm upgrade`" in refused.err
    administrator.helm("upgrade", SECOND)
    assert administrator.start(SECOND).out.endswith("already; unchanged\n")


@pytest.mark.usefixtures("cluster")
def test_a_field_that_was_taken_from_helm_is_given_back_as_the_answer_says(
    administrator: Administrator,
) -> None:
    forced = administrator.start(SECOND, "--force")
    assert (forced.code, forced.err) == (ExitCode.DONE, "")
    assert "The field was taken from Helm, as release policy-alone" in forced.out
    with pytest.raises(AssertionError, match='conflict with "kubectl-sluice"'):
        administrator.helm("upgrade", FIRST)
    assert f"set `driver.version: {SECOND}` there; the next change" in forced.out
    administrator.helm("upgrade", SECOND)
    assert "needs `helm upgrade --force-conflicts` once" in forced.out
    with pytest.raises(AssertionError, match='conflict with "kubectl-sluice"'):
        administrator.helm("upgrade", THIRD)
    administrator.helm("upgrade", THIRD, "--force-conflicts")
    administrator.helm("upgrade", FIRST)
