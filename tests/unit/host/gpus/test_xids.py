"""XIDs of NVML and of the kernel log: each is counted once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from libs.contracts.facts import Gpu
from libs.host.gpus import errors
from libs.host.gpus.errors import UNKNOWN, GpuErrors
from libs.host.gpus.protocol import Event
from libs.host.gpus.xids import WINDOW, XidMerge
from libs.host.kernel_log import KernelLog, SwitchError, Xid
from libs.host.tree import Tree

SLOT = "0000:41:00"
UUID = "GPU-1"
GPU = Gpu(uuid=UUID, index=0, minor=0, pci="00000000:41:00.0", name="", memory_mib=0)


class Log(KernelLog):
    """A kernel log in memory."""

    def __init__(self) -> None:
        super().__init__(Tree("/nowhere"))
        self.errors: list[Xid | SwitchError] = []
        self.problem: OSError | None = None
        self.is_loading = False

    def read(self) -> list[Xid | SwitchError]:
        self.loads += self.is_loading
        if self.problem is not None:
            raise self.problem
        found, self.errors = self.errors, []
        return found


class Machine:
    """Two sources of XIDs, and what is counted of them."""

    def __init__(self) -> None:
        self.log = Log()
        self.now = 100.0
        self.errors = GpuErrors(self.log, now=lambda: self.now)
        self.errors.learn([GPU])
        self.errors.begin()

    def report(self, *codes: int, at: float | None = None, gpu: int = 0) -> None:
        time = self.now if at is None else at
        self.errors.add([Event(gpu, code, time) for code in codes], {0: GPU})

    def print(self, *codes: int, at: float | None = None, slot: str = SLOT) -> None:
        time = self.now if at is None else at
        self.log.errors += [Xid(slot, code, time) for code in codes]

    def take(self, after: float = 30.0) -> dict[str, tuple[int, ...]]:
        self.now += after
        return self.errors.take()


@pytest.fixture
def logged() -> Iterator[Callable[[], list[str]]]:
    """Return the messages that were logged."""
    with capture_logs() as logs:
        yield lambda: [entry["event"] for entry in logs]


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_what_both_sources_say_counts_once(machine: Machine) -> None:
    machine.print(79)
    machine.report(79)
    assert machine.take() == {UUID: (79,)}
    assert machine.take() == {}


@pytest.mark.parametrize("between", [-9.0, -1.0, 0.0, 1.0, 9.0])
def test_the_clocks_of_the_sources_may_differ(machine: Machine, between: float) -> None:
    machine.report(79)
    machine.print(79, at=machine.now + between)
    assert machine.take() == {UUID: (79,)}
    assert machine.take() == {}


def test_what_nvml_says_counts_at_once_and_as_often_as_it_says_it(machine: Machine) -> None:
    machine.report(31, 31, 31)
    machine.print(31)
    assert machine.take(after=0.1) == {UUID: (31, 31, 31)}
    assert machine.take() == {}


def test_an_error_of_a_time_without_nvml_is_taken_from_the_kernel_log(machine: Machine) -> None:
    machine.print(79)
    assert machine.take(after=WINDOW) == {}, "NVML may still report it"
    assert machine.take(after=1) == {UUID: (79,)}
    assert machine.take() == {}


def test_several_lines_of_one_error_count_once(machine: Machine) -> None:
    machine.print(13, 13, 13)
    machine.print(13, at=machine.now + WINDOW)
    machine.print(13, at=machine.now + WINDOW + 1)
    assert machine.take() == {UUID: (13, 13)}


def test_other_gpus_and_other_codes_are_other_errors(machine: Machine) -> None:
    machine.report(79)
    machine.print(79, 48)
    machine.print(79, slot="0000:c1:00")
    assert machine.take() == {UUID: (79, 48), "0000:c1:00": (79,)}


def test_a_gpu_is_named_by_what_is_known_of_it(machine: Machine) -> None:
    machine.report(79, gpu=5)
    machine.errors.add(
        [Event(1, 48, 0.0)],
        {1: Gpu(uuid="", index=1, minor=-1, pci="00000000:C1:00.0", name="", memory_mib=0)},
    )
    assert machine.take() == {UNKNOWN: (79,), "0000:c1:00": (48,)}


def test_a_flood_is_bounded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "MAX_KEPT", 100)
    machine.report(*[31] * 1000)
    assert machine.take() == {UUID: (31,) * 100}


def test_without_the_kernel_log_nvml_counts_and_the_reason_is_logged_once(
    machine: Machine, logged: Callable[[], list[str]]
) -> None:
    machine.log.problem = PermissionError(1, "not permitted", "/dev/kmsg")
    machine.report(79)
    assert machine.take() == {UUID: (79,)}
    assert machine.take() == {}
    assert len(logged()) == 1


def test_an_error_of_a_switch_is_logged_and_is_no_xid(
    machine: Machine, logged: Callable[[], list[str]]
) -> None:
    machine.log.errors = [SwitchError("0000:c1:00", 20034, True, "Link 30", 100.0)]
    assert machine.take() == {}
    assert logged() == ["an NVSwitch reported an error"]


def test_without_a_kernel_log_nothing_is_raised(tmp_path: Path) -> None:
    errors = GpuErrors(KernelLog(Tree(tmp_path)))
    errors.begin()
    assert errors.take() == {}


def test_the_log_waits_until_gpus_can_be_named(machine: Machine) -> None:
    errors = GpuErrors(machine.log, now=lambda: 100.0)
    machine.print(79, at=1.0)
    assert errors.take() == {}
    errors.begin()
    assert errors.take() == {SLOT: (79,)}


def test_what_waits_is_forgotten_when_the_driver_is_loaded_anew(machine: Machine) -> None:
    machine.print(79)
    assert machine.take(after=1) == {}
    machine.log.is_loading = True
    assert machine.take() == {}


def test_the_place_in_the_log_is_behind_what_was_returned(machine: Machine) -> None:
    machine.errors.follow_log(5)
    assert (machine.log.sequence, machine.errors.logged_until) == (5, 5)
    machine.print(79)
    machine.log.last_error = 8
    machine.take(after=1)
    assert machine.errors.logged_until == 5, "another process must read what still waits"
    machine.take()
    assert machine.errors.logged_until == 8


happenings = st.lists(
    st.tuples(
        st.floats(0, 500), st.sampled_from([13, 79]), st.sampled_from(["both", "log", "nvml"])
    ),
    max_size=20,
)


@given(happenings, st.lists(st.floats(0, 600), max_size=10))
def test_nothing_counts_twice_and_nothing_nvml_said_is_lost(
    happened: list[tuple[float, int, str]], takes: list[float]
) -> None:
    merge, last, found = XidMerge(), 0.0, list[Xid]()
    for now in [*sorted(takes), 700.0]:
        new = [each for each in sorted(happened) if last <= each[0] < now]
        merge.add_logged(Xid(SLOT, code, at) for at, code, who in new if who != "nvml")
        merge.add_reported(Xid(SLOT, code, at) for at, code, who in new if who != "log")
        found += merge.take_unreported(now)
        last = now
    for xid in found:
        assert not any(
            who != "log" and code == xid.code and abs(at - xid.at) <= WINDOW
            for at, code, who in happened
        )
    logged = {(code, at) for at, code, who in happened if who != "nvml"}
    known = {(xid.code, xid.at) for xid in found} | {
        (code, at) for at, code, who in happened if who != "log"
    }
    assert {(xid.code, xid.at) for xid in found} <= logged
    for code, at in logged:
        assert any(code == other and abs(at - when) <= WINDOW for other, when in known)


def test_errors_of_switches_are_taken_once(machine: Machine) -> None:
    error = SwitchError(slot="0000:c1:00", code=20034, is_fatal=True, text="LTSSM", at=1.0)
    machine.log.errors = [error, Xid(SLOT, 74, 1.0)]
    assert machine.errors.take_switch_errors() == ()
    assert machine.take() == {UUID: (74,)}
    assert machine.errors.take_switch_errors() == (error,)
    assert machine.errors.take_switch_errors() == ()
