"""Fixtures: Helm, and the real control plane with the definitions of Sluice's kinds."""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from libs.policy.crds import crd_manifests
from libs.testing.helm import find_helm
from libs.testing.realkube.cluster import RealKube
from tests.component.chart.rendered import CHART, Object, parsed
from tests.run.plan import MARKER, GroundKind, together
from tests.system.nodes.kubectl import Kubectl

Render = Callable[..., list[Object]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests of a kind on one worker: each would start a control plane, or render the chart."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "cluster" in names:
            item.add_marker(GroundKind.CONTROL_PLANE.marker())
        elif "render" in names and together(item) is None:
            item.add_marker(getattr(pytest.mark, MARKER)("chart"))


@pytest.fixture(scope="session")
def helm() -> Path:
    program = find_helm(os.environ)
    if program is None:
        pytest.skip("Helm is not built: run `make helm`")
    return program


@pytest.fixture
def render(helm: Path) -> Render:
    """Return a function that renders the chart, as `helm template`."""

    def render(
        *arguments: str, namespace: str = "gpu-operator", chart: Path = CHART
    ) -> list[Object]:
        return json.loads(_template(helm, chart, namespace, arguments))

    return render


@cache
def _template(helm: Path, chart: Path, namespace: str, arguments: tuple[str, ...]) -> str:
    """Return the rendered objects as JSON; many tests look at the same ones."""
    output = run(helm, "template", "sluice", str(chart), "--namespace", namespace, *arguments)
    return json.dumps(parsed(output))


@pytest.fixture(scope="session")
def definitions(plane: RealKube) -> RealKube:
    """Install the definitions once."""

    async def install() -> None:
        kubectl = Kubectl(plane)
        await kubectl.apply(*crd_manifests().values())
        names = [f"crd/{name}" for name in crd_manifests()]
        await kubectl.wait("condition=Established", *names)

    asyncio.run(install())
    return plane


@pytest.fixture
def cluster(definitions: RealKube) -> Kubectl:
    return Kubectl(definitions)


def run(program: Path, *arguments: str) -> str:
    """Run a program; return its output, and fail with what it says."""
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_list(objects: list[Object]) -> str:
    """Return objects as kubectl reads them."""
    items: dict[str, Any] = {"apiVersion": "v1", "kind": "List", "items": objects}
    return json.dumps(items)
