"""What people are told while containers cannot have the GPUs of a node."""

from libs.contracts.facts import Cdi, ContainerRuntime, Facts, LoadedDriver, NextKernel
from libs.contracts.identities import Writer
from libs.contracts.reports import StateKind
from tests.component.scheduler.world import World, in_world

MISSING = "libcuda.so.580.95.05 was not found below the driver's root /run/nvidia/driver"

RUNTIME = "containerd reads no CDI specs before it is restarted"


async def report_cdi(world: World, cdi: Cdi, *, boot: str = "") -> None:
    """Report, as the driver agent of node a does, what its CDI specs give."""
    boot = boot or world.machines["a"].boot_id
    facts = Facts(
        driver=LoadedDriver(version="580.95.05"),
        cdi=cdi,
        container_runtime=ContainerRuntime(why=RUNTIME),
    )
    await world.report("a", facts, writer=Writer.DRIVER, boot=boot, kind=StateKind.FACTS)


@in_world
async def test_status_and_why_tell_why_containers_cannot_have_gpus(world: World) -> None:
    await world.complete_first_rollout("a", "b")
    await world.kill_agents("a")
    assert (await world.why("a")).no_gpus == ""
    await report_cdi(world, Cdi(why="of the boot before"), boot="another")
    await world.sleep(5)
    assert (await world.why("a")).no_gpus == ""
    await report_cdi(world, Cdi(devices=("GPU-0",), why=MISSING))
    await world.sleep(5)
    why = await world.why("a")
    assert (why.no_gpus, why.container_runtime) == (MISSING, RUNTIME)
    assert (await world.why("b")).no_gpus == ""
    assert (await world.pool_status()).without_gpus == 1


@in_world
async def test_why_tells_that_the_next_kernel_may_have_no_driver(world: World) -> None:
    await world.complete_first_rollout("a")
    await world.kill_agents("a")
    assert (await world.why("a")).next_kernel == ""
    kernel = NextKernel(release="6.8.0-50-generic", without_headers=True)
    await world.report(
        "a",
        Facts(next_kernel=kernel),
        writer=Writer.DISCOVERY,
        boot=world.machines["a"].boot_id,
        kind=StateKind.FACTS,
    )
    await world.sleep(5)
    assert "kernel 6.8.0-50-generic" in (await world.why("a")).next_kernel
    assert (await world.why("a")).in_place
