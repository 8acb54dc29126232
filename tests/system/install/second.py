"""A second version of Sluice, which is the first under other names."""

import shutil
from collections.abc import Mapping, Set
from pathlib import Path

from libs.policy.render.driver import APP as DRIVER
from tests.support import eventually
from tests.system.install.world import CHART, RunningPod, World

SECOND = "second"
"""The tag of its image."""
NATS = "nats"
OF_OTHERS = (NATS, DRIVER)
"""The pods that do not run our image."""


def second_chart(folder: Path) -> Path:
    """Write the chart of a later version."""
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    text = (chart / "Chart.yaml").read_text()
    later = text.replace("ersion: 0.1.0", "ersion: 0.2.0")
    assert later.count("0.2.0") == 2
    (chart / "Chart.yaml").write_text(later)
    return chart


def restarted(pods: Mapping[str, RunningPod]) -> dict[str, int]:
    """Return how often pods were restarted, of those that were."""
    return {uid: pod.restarts for uid, pod in pods.items() if pod.restarts}


async def until_second(world: World, *, besides: Set[tuple[str, str]] = frozenset()) -> None:
    """Wait until all pods of ours are of the second version, besides those apps of those nodes."""

    async def are_second() -> bool:
        pods = (await world.running()).values()
        ours = {pod for pod in pods if pod.app not in OF_OTHERS and pod[:2] not in besides}
        return {pod.tag for pod in ours} == {SECOND}

    try:
        await eventually(are_second, within=300, every=1.0)
    except TimeoutError:
        raise AssertionError(await world.story()) from None
