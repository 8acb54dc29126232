"""`helm upgrade` to a second version on a real node, while its driver is being upgraded."""

import shutil
from pathlib import Path

import pytest

from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.testing.image.driver_settings import DriverSettings
from tests.support import eventually
from tests.system.install.test_install import AGENTS
from tests.system.install.world import CHART, NEXT, VERSION, World

SECOND = "second"
"""The tag of the second version's image."""
SERVICES = "app.kubernetes.io/name=sluice,app.kubernetes.io/component notin (nats,setup,test)"
NATS = "app.kubernetes.io/component=nats"
DRIVER = "app=nvidia-driver-daemonset"


def second_chart(folder: Path) -> Path:
    """Write the chart of a later version."""
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    text = (chart / "Chart.yaml").read_text()
    later = text.replace("ersion: 0.1.0", "ersion: 0.2.0")
    assert later.count("0.2.0") == 2
    (chart / "Chart.yaml").write_text(later)
    return chart


async def state(world: World) -> str:
    (node,) = (await world.kubectl.get("nodes"))["items"]
    return node["metadata"]["labels"].get(STATE_LABEL, "")


async def runs(world: World, version: str) -> bool:
    """Return whether the driver of this version is proven on the node."""
    return (
        world.machine.kernel.version() == version
        and await state(world) == UpgradeState.UPGRADE_DONE
    )


async def restarts(world: World, labels: str) -> dict[str, int]:
    """Return how often the containers of each pod were started again, by the pod's uid."""
    return {
        uid: sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
        for uid, pod in (await world.pods(labels)).items()
    }


@pytest.mark.timeout(1800)
async def test_sluice_is_upgraded_while_a_driver_is(world: World, tmp_path: Path) -> None:
    await world.install()
    await world.until_rolled_out("deployment", within=240)
    await world.until_agents_are_ready(AGENTS, within=240)
    await eventually(lambda: runs(world, VERSION), within=240, every=1.0)
    services, nats = await world.pods(SERVICES), await restarts(world, NATS)
    await world.tag_image(SECOND)

    world.machine.set_driver(NEXT, DriverSettings(hangs=True))
    await world.upgrade(driver=NEXT)
    await eventually(lambda: installs(world), within=240, every=0.5)
    # Another driver is no reason to restart a service.
    assert (await world.pods(SERVICES)).keys() == services.keys()
    (driver,) = await world.pods(DRIVER)

    await world.upgrade(driver=NEXT, tag=SECOND, chart=second_chart(tmp_path))
    assert await state(world) != UpgradeState.UPGRADE_DONE
    await world.until_rolled_out("deployment", within=240)
    world.machine.set_driver(NEXT, DriverSettings())
    await eventually(lambda: runs(world, NEXT), within=400, every=1.0)
    await world.until_agents_are_ready(AGENTS, within=240)

    images = {
        container["image"]
        for pod in (await world.pods(SERVICES)).values()
        for container in pod["spec"]["containers"]
    }
    assert {image.rpartition(":")[2] for image in images} == {SECOND}
    # NATS and the driver run on, and nothing failed meanwhile.
    assert await restarts(world, NATS) == nats
    assert await restarts(world, DRIVER) == {driver: 0}
    assert set((await restarts(world, SERVICES)).values()) == {0}
    assert world.machine.incidents() == []
    (node,) = (await world.kubectl.get("nodes"))["items"]
    assert not node["spec"].get("unschedulable")


async def installs(world: World) -> bool:
    """Return whether the container of the next driver runs, and has not loaded it yet."""
    pods = (await world.pods(DRIVER)).values()
    return any(
        NEXT in container["image"] and pod["status"]["phase"] == "Running"
        for pod in pods
        for container in pod["spec"]["containers"]
    )
