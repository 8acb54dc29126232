"""How NVML divides GPUs: other products, older drivers, hangs, and values that cannot be true."""

import pytest

from libs.contracts.gpus import GpuProblem
from libs.host.gpus.division import Activation, DivisionRefused
from libs.host.gpus.port import GpuHandle, GpusUnavailable
from libs.policy.mig.defaults import default_config
from libs.policy.mig.resolution import MigProblem, resolve
from libs.testing.nvml import Return
from services.discovery.node.mig_boards import MigBoards
from services.driver.node.mig_plan import Impossible, plan
from tests.component.gpus.machine import StandInMachine
from tests.unit.host.mig_suite import ReadOnlyMigSuite, create, shape, uuid_of, with_mig


@pytest.mark.parametrize(
    "bench",
    [{"profile": name} for name in ("A100-40GB", "T4", "L40S", "GB200")],
    indirect=True,
    ids=lambda arguments: arguments["profile"],
)
class TestOtherProducts(ReadOnlyMigSuite):
    """The tests that change nothing, on all other products."""


def test_a_driver_with_the_first_version_of_the_call_alone(bench: StandInMachine) -> None:
    uuid = uuid_of(bench)
    before = bench.gpus.division(uuid)
    bench.stand_in.fail("nvmlDeviceGetGpuInstanceProfileInfoV", Return.FUNCTION_NOT_FOUND)
    assert bench.gpus.division(uuid) == before
    assert len(before.profiles) == 7


def test_a_driver_that_names_no_profiles_while_mig_is_off(bench: StandInMachine) -> None:
    uuid = uuid_of(bench)
    for version in ("", "V"):
        bench.stand_in.fail(f"nvmlDeviceGetGpuInstanceProfileInfo{version}", Return.NOT_SUPPORTED)
    assert bench.gpus.division(uuid).profiles == ()


def test_an_error_is_no_absent_instance(bench: StandInMachine) -> None:
    uuid = with_mig(bench)
    create(bench, uuid, "7g.80gb", 0)
    for function in ("nvmlDeviceGetGpuInstances", "nvmlGpuInstanceGetComputeInstances"):
        bench.stand_in.fail(function, Return.UNKNOWN)
        with pytest.raises(DivisionRefused, match=r"the driver refused \(NVML's error 999\)"):
            bench.gpus.division(uuid)
        bench.stand_in.restore()
    assert shape(bench.gpus.division(uuid)) == [("7g.80gb", 0, (7,))]


def test_a_change_that_hangs_is_given_up_and_the_other_gpus_go_on(bench: StandInMachine) -> None:
    uuids = [with_mig(bench, index) for index in (0, 1)]
    profile = bench.gpus.division(uuids[0]).profiles[0]
    bench.gpus.division(uuids[1])
    bench.stand_in.gpus[0].hang()
    with pytest.raises(GpusUnavailable) as raised:
        bench.gpus.create_instance(uuids[0], profile, start=0, compute=(1,))
    assert raised.value.problem is GpuProblem.HUNG
    with pytest.raises(GpusUnavailable):
        bench.gpus.destroy_instance(uuids[0], 1)
    create(bench, uuids[1], "7g.80gb", 0)
    assert shape(bench.gpus.division(uuids[1])) == [("7g.80gb", 0, (7,))]
    bench.gpus.close()
    assert not bench.held()


def test_a_mode_whose_change_hangs_leaves_nothing_open(bench: StandInMachine) -> None:
    uuid = uuid_of(bench)
    bench.stand_in.gpus[0].hang()
    with pytest.raises(GpusUnavailable):
        bench.gpus.set_mig_mode(uuid, on=True)
    assert not bench.held()
    bench.stand_in.gpus[0].release()
    bench.gpus.open()
    assert bench.gpus.set_mig_mode(uuid, on=True) is Activation.DONE


def test_a_process_that_cannot_be_ended_is_named(bench: StandInMachine) -> None:
    uuid = uuid_of(bench)
    bench.hold_back(stuck=True)
    for call in (lambda: bench.gpus.set_mig_mode(uuid, on=True), lambda: bench.gpus.division(uuid)):
        with pytest.raises(GpusUnavailable, match="must be rebooted") as raised:
            call()
        assert raised.value.problem is GpuProblem.DRIVER_HUNG
    bench.hold_back(stuck=False)
    assert not bench.stand_in.gpus[0].mig.mode


def test_values_that_cannot_be_true_are_left_out(bench: StandInMachine) -> None:
    uuid = with_mig(bench)
    create(bench, uuid, "1g.10gb", 0)
    mig = bench.stand_in.gpus[0].mig
    mig.gpu_instances[0].start = 0xFFFFFFF0
    (found,) = bench.gpus.division(uuid).instances
    assert (found.profile, found.start, found.compute) == ("", 0, (1,))
    mig.profiles[0].memory_mib = 1 << 63
    mig.profiles[1].slices = 0xFFFFFFFF
    mig.profiles[2].size = 0
    names = [each.name for each in bench.gpus.division(uuid).profiles]
    assert names == ["2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]


@pytest.mark.parametrize(
    ("name", "profiles"),
    [
        ("all-balanced", ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")),
        ("all-1g.10gb", ("1g.10gb",) * 7),
        ("all-1g.10gb.me", ("1g.10gb+me",)),
        ("all-7g.80gb", ("7g.80gb",)),
    ],
)
def test_a_board_that_no_table_has_is_divided_as_nvml_says(
    bench: StandInMachine, name: str, profiles: tuple[str, ...]
) -> None:
    uuid = with_mig(bench)
    gpus = bench.gpus.describe()
    boards = MigBoards().read(GpuHandle(bench.gpus), gpus)
    assert boards is not None
    geometry = resolve(default_config(), name, gpus, [], boards)
    assert not isinstance(geometry, MigProblem), geometry
    assert [each.profiles for each in geometry] == [profiles] * 8
    steps = plan([bench.gpus.division(uuid)], geometry[:1])
    assert not isinstance(steps, Impossible), steps
    assert [str(each).split()[1] for each in steps] == list(profiles)
