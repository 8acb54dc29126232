"""The behaviour of every implementation of `Gpus`."""

from typing import Protocol

import pytest

from libs.host.gpus.port import Gpus, GpusUnavailable


class GpuFixture(Protocol):
    """A machine with GPUs that a test can control."""

    gpus: Gpus

    def load(self, version: str) -> None:
        """Load a driver."""
        ...

    def unload(self) -> None:
        """Unload the driver."""
        ...

    def held(self) -> bool:
        """Return whether the library keeps the driver in use."""
        ...

    def fail(self, uuid: str, xid: int) -> None:
        """Let a GPU report an error."""
        ...


class GpusSuite:
    """The tests; a subclass provides the fixture `bench`."""

    def test_open_fails_without_a_driver(self, bench: GpuFixture) -> None:
        bench.unload()
        with pytest.raises(GpusUnavailable):
            bench.gpus.open()
        assert not bench.held()

    def test_queries_fail_unless_open(self, bench: GpuFixture) -> None:
        for ask in (bench.gpus.describe, bench.gpus.sample, bench.gpus.errors):
            with pytest.raises(GpusUnavailable):
                ask()

    def test_open_returns_the_driver_version(self, bench: GpuFixture) -> None:
        bench.load("570.86.15")
        assert bench.gpus.open().driver_version == "570.86.15"
        assert bench.gpus.open().driver_version == "570.86.15"

    def test_an_open_library_holds_the_driver(self, bench: GpuFixture) -> None:
        assert not bench.held()
        bench.gpus.open()
        assert bench.held()
        bench.gpus.close()
        bench.gpus.close()
        assert not bench.held()

    def test_each_gpu_is_described_and_sampled_by_index(self, bench: GpuFixture) -> None:
        bench.gpus.open()
        described = bench.gpus.describe()
        assert [gpu.index for gpu in described] == list(range(len(described)))
        assert len({gpu.uuid for gpu in described}) == len(described) > 0
        assert [sample.uuid for sample in bench.gpus.sample()] == [gpu.uuid for gpu in described]

    def test_an_error_is_returned_once(self, bench: GpuFixture) -> None:
        bench.gpus.open()
        uuid = bench.gpus.describe()[0].uuid
        bench.fail(uuid, 79)
        bench.fail(uuid, 48)
        assert bench.gpus.errors() == {uuid: (79, 48)}
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
