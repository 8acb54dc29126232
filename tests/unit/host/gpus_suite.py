"""The behaviour of every implementation of `Gpus`."""

import time
from typing import Protocol

import pytest

from libs.contracts.facts import Gpu
from libs.contracts.gpus import GpuProblem
from libs.contracts.telemetry import GpuSample
from libs.host.gpus.port import Gpus, GpusUnavailable

GPU_PROBLEMS = [
    GpuProblem.HUNG,
    GpuProblem.LOST,
    GpuProblem.RESET_REQUIRED,
    GpuProblem.INSUFFICIENT_POWER,
]
LONGEST_WAIT = 20.0
"""Seconds; only a failing test waits for so long."""


class ReadOnlyGpuFixture(Protocol):
    """A machine with GPUs."""

    gpus: Gpus

    def held(self) -> bool:
        """Return whether the library keeps the driver in use."""
        ...


class GpuFixture(ReadOnlyGpuFixture, Protocol):
    """A machine with two or more GPUs that a test can control."""

    def load(self, version: str) -> None:
        """Load a driver."""
        ...

    def unload(self) -> None:
        """Unload the driver."""
        ...

    def fail(self, uuid: str, xid: int) -> None:
        """Let a GPU report an error."""
        ...

    def settle(self) -> None:
        """Wait until what the GPUs reported has left the driver."""
        ...

    def set_problem(self, index: int, problem: GpuProblem | None) -> None:
        """Let a GPU have a problem, or none any more."""
        ...

    def hold_back(self, *, stuck: bool) -> None:
        """Let a call hang in the driver such that nothing closes the device, or end that."""
        ...


def errors_of(gpus: Gpus, *, count: int) -> dict[str, tuple[int, ...]]:
    """Return the next errors; the driver needs a moment to report them."""
    errors: dict[str, tuple[int, ...]] = {}
    end = time.monotonic() + LONGEST_WAIT
    while sum(map(len, errors.values())) < count and time.monotonic() < end:
        for uuid, codes in gpus.errors().items():
            errors[uuid] = (*errors.get(uuid, ()), *codes)
        time.sleep(0.005)
    return errors


def wait_for(gpus: Gpus, *, problem: GpuProblem | None) -> tuple[Gpu, ...]:
    """Describe the GPUs until the second has this problem; one that answers needs a moment."""
    end = time.monotonic() + LONGEST_WAIT
    while (found := gpus.describe())[1].problem is not problem and time.monotonic() < end:
        time.sleep(0.005)
    return found


def is_measured(sample: GpuSample) -> bool:
    return sample != GpuSample(uuid=sample.uuid, index=sample.index, pci=sample.pci)


class ReadOnlyGpusSuite:
    """The tests that change nothing; a subclass provides the fixture `bench`."""

    def test_queries_fail_unless_open(self, bench: ReadOnlyGpuFixture) -> None:
        for ask in (bench.gpus.describe, bench.gpus.sample, bench.gpus.links):
            with pytest.raises(GpusUnavailable):
                ask()

    def test_open_returns_the_same_version_again(self, bench: ReadOnlyGpuFixture) -> None:
        version = bench.gpus.open().driver_version
        assert version
        assert bench.gpus.open().driver_version == version

    def test_an_open_library_holds_the_driver(self, bench: ReadOnlyGpuFixture) -> None:
        assert not bench.held()
        bench.gpus.open()
        assert bench.held()
        bench.gpus.close()
        bench.gpus.close()
        assert not bench.held()

    def test_each_gpu_is_described_and_sampled_by_index(self, bench: ReadOnlyGpuFixture) -> None:
        bench.gpus.open()
        described = bench.gpus.describe()
        assert [gpu.index for gpu in described] == list(range(len(described)))
        assert len({gpu.uuid for gpu in described}) == len(described) > 0
        assert all(gpu.pci and gpu.name and gpu.memory_mib for gpu in described)
        assert [gpu.problem for gpu in described] == [None] * len(described)
        samples = bench.gpus.sample()
        assert [sample.uuid for sample in samples] == [gpu.uuid for gpu in described]
        assert all(map(is_measured, samples))
        assert bench.gpus.describe() == described

    def test_a_sweep_describes_and_samples(self, bench: ReadOnlyGpuFixture) -> None:
        bench.gpus.open()
        described, samples = bench.gpus.sweep()
        assert described == bench.gpus.describe() != ()
        assert [sample.uuid for sample in samples] == [gpu.uuid for gpu in described]
        assert all(map(is_measured, samples))

    def test_the_links_of_each_gpu_lead_to_others(self, bench: ReadOnlyGpuFixture) -> None:
        bench.gpus.open()
        described, links = bench.gpus.describe(), bench.gpus.links()
        assert links.keys() == {gpu.uuid for gpu in described}
        assert all(gpu.pci not in links[gpu.uuid] for gpu in described)
        assert all(len(links[gpu.uuid]) <= gpu.nvlinks for gpu in described)


class GpusSuite(ReadOnlyGpusSuite):
    """All tests."""

    def test_open_fails_without_a_driver(self, bench: GpuFixture) -> None:
        bench.unload()
        with pytest.raises(GpusUnavailable) as raised:
            bench.gpus.open()
        assert raised.value.problem is GpuProblem.DRIVER_NOT_LOADED
        assert not bench.held()

    def test_open_returns_the_driver_version(self, bench: GpuFixture) -> None:
        bench.load("570.86.15")
        assert bench.gpus.open().driver_version == "570.86.15"

    def test_an_error_is_returned_once(self, bench: GpuFixture) -> None:
        bench.gpus.open()
        uuid = bench.gpus.describe()[0].uuid
        bench.fail(uuid, 79)
        bench.fail(uuid, 48)
        assert errors_of(bench.gpus, count=2) == {uuid: (79, 48)}
        assert bench.gpus.errors() == {}

    def test_an_error_from_before_a_close_is_returned_after_it(self, bench: GpuFixture) -> None:
        bench.gpus.open()
        uuid = bench.gpus.describe()[0].uuid
        bench.fail(uuid, 79)
        bench.settle()
        bench.gpus.close()
        assert bench.gpus.errors() == {uuid: (79,)}
        assert bench.gpus.errors() == {}

    def test_the_library_opens_again_under_the_next_driver(self, bench: GpuFixture) -> None:
        bench.gpus.open()
        bench.gpus.close()
        bench.unload()
        with pytest.raises(GpusUnavailable):
            bench.gpus.open()
        bench.load("575.51.03")
        assert bench.gpus.open().driver_version == "575.51.03"
        assert bench.gpus.sample()

    @pytest.mark.parametrize("problem", GPU_PROBLEMS)
    def test_a_gpu_with_a_problem_keeps_its_identity_and_the_others_go_on(
        self, bench: GpuFixture, problem: GpuProblem
    ) -> None:
        bench.gpus.open()
        before = bench.gpus.describe()
        bench.set_problem(1, problem)
        after = bench.gpus.describe()
        assert [gpu.uuid for gpu in after] == [gpu.uuid for gpu in before]
        assert [gpu.problem for gpu in after] == [
            problem if gpu.index == 1 else None for gpu in before
        ]
        assert after[1].hung is (problem is GpuProblem.HUNG)
        assert after[1].name == before[1].name
        samples = bench.gpus.sample()
        assert [sample.uuid for sample in samples] == [gpu.uuid for gpu in before]
        assert [is_measured(sample) for sample in samples] == [gpu.index != 1 for gpu in before]
        assert bench.gpus.sweep()[0] == after
        assert [is_measured(sample) for sample in bench.gpus.sweep()[1]] == [
            gpu.index != 1 for gpu in before
        ]
        bench.set_problem(1, None)
        assert wait_for(bench.gpus, problem=None) == before

    def test_a_device_that_stays_open_is_not_called_closed(self, bench: GpuFixture) -> None:
        bench.gpus.open()
        bench.hold_back(stuck=True)
        for call in (bench.gpus.close, bench.gpus.close, bench.gpus.open, bench.gpus.sample):
            with pytest.raises(GpusUnavailable, match="must be rebooted") as raised:
                call()
            assert raised.value.problem is GpuProblem.DRIVER_HUNG
        assert bench.held()
        bench.hold_back(stuck=False)
        bench.gpus.close()
        assert not bench.held()
        assert bench.gpus.open()
