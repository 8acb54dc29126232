"""A simulated machine whose GPUs pynvml reads: their readings move with the jobs on them."""

from pathlib import Path

import pytest

from libs.host.gpus.port import GpusUnavailable
from libs.host.holders import holders
from libs.host.machine import InlineOffload
from libs.testing.machines.base_files import System
from libs.testing.machines.library_machine import LibraryMachine
from libs.testing.nvml import VARIABLE, NotBuilt, library
from libs.testing.simulation import make_env
from libs.testing.stage.worlds import SteadyWorld
from tests.unit.host.gpus_suite import is_measured


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LibraryMachine:
    try:
        folder = library()
    except NotBuilt as error:
        pytest.skip(str(error))
    state = tmp_path / "gpus"
    monkeypatch.setenv(VARIABLE, str(state))
    return LibraryMachine(
        tmp_path / "host",
        state=state,
        library=folder,
        name="a",
        model=SteadyWorld(),
        env=make_env(),
        system=System(driver="570.86.15"),
    )


def test_temperature_power_and_use_move_with_the_jobs(machine: LibraryMachine) -> None:
    host = machine.host(InlineOffload())
    assert host.gpus.open().driver_version == "570.86.15"
    simulated = machine.host(InlineOffload(), proves=True).gpus
    described = host.gpus.describe()
    assert len({gpu.uuid for gpu in described}) == 8
    machine.show_readings()
    idle = host.gpus.sample()
    assert all(map(is_measured, idle))
    job = machine.start_process(2, 5)
    machine.show_readings()
    for before, after in zip(idle, host.gpus.sample(), strict=True):
        grows = after.index in (2, 5)
        assert ((after.temperature_c or 0) > (before.temperature_c or 0)) is grows
        assert ((after.power_w or 0.0) > (before.power_w or 0.0) + 100) is grows
        assert ((after.gpu_utilization or 0) > 50) is grows
        assert ((after.framebuffer_used_mib or 0) > 70_000) is grows
    machine.end_process(job)
    machine.show_readings()
    assert [gpu.gpu_utilization for gpu in host.gpus.sample()] == [0] * 8
    machine.kill(host)
    simulated.close()


def test_the_library_holds_the_simulated_driver_until_its_agent_ends(
    machine: LibraryMachine,
) -> None:
    host, proof = machine.host(InlineOffload()), machine.host(InlineOffload(), proves=True)
    proof.gpus.open()
    simulated = [(gpu.uuid, gpu.pci) for gpu in proof.gpus.describe()]
    machine.kill(proof)
    assert list(holders(host.tree)) == []
    host.gpus.open()
    read = [(gpu.uuid, gpu.pci.lower().removeprefix("0000")) for gpu in host.gpus.describe()]
    assert read == simulated
    (holder,) = holders(host.tree)
    assert len(holder.devices) == 9
    machine.kill(host)
    assert list(holders(host.tree)) == []
    with pytest.raises(GpusUnavailable, match="has ended"):
        host.gpus.open()
