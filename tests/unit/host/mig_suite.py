"""The behaviour of every implementation of `Gpus` that divides GPUs."""

from typing import Protocol

import pytest

from libs.contracts.gpus import GpuProblem
from libs.host.gpus.division import Activation, DivisionRefused, GpuDivision, RefusalReason
from libs.host.gpus.port import Gpus, GpusUnavailable
from libs.policy.mig.profiles import parse_profile
from tests.unit.host.gpus_suite import ReadOnlyGpuFixture


class MigFixture(Protocol):
    """A machine with two or more H100 of 80 GB, whose MIG mode is off."""

    @property
    def gpus(self) -> Gpus: ...

    def held(self) -> bool: ...

    def set_problem(self, index: int, problem: GpuProblem | None) -> None: ...

    def set_activation(self, activation: Activation) -> None:
        """Let a change of the mode of a free GPU end so."""
        ...

    def use(self, index: int, *, used: bool) -> None:
        """Let a process compute on the GPU, or end it."""
        ...

    def forbid(self) -> None:
        """Refuse the agent changes, as for a process that is not privileged."""
        ...


def uuid_of(bench: MigFixture, index: int = 0) -> str:
    bench.gpus.open()
    return bench.gpus.describe()[index].uuid


def with_mig(bench: MigFixture, index: int = 0) -> str:
    """Turn on the MIG mode of a GPU; return its UUID, with the library open."""
    uuid = uuid_of(bench, index)
    assert bench.gpus.set_mig_mode(uuid, on=True) is Activation.DONE
    bench.gpus.open()
    return uuid


def create(bench: MigFixture, uuid: str, name: str, start: int, *compute: int) -> None:
    profiles = {each.name: each for each in bench.gpus.division(uuid).profiles}
    bench.gpus.create_instance(
        uuid, profiles[name], start=start, compute=compute or (profiles[name].slices,)
    )


def shape(division: GpuDivision) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(each.profile, each.start, each.compute) for each in division.instances]


class ReadOnlyMigSuite:
    """The tests that change nothing; a subclass provides the fixture `bench`."""

    def test_every_gpu_says_how_it_is_divided(self, bench: ReadOnlyGpuFixture) -> None:
        bench.gpus.open()
        for gpu in bench.gpus.describe():
            if not gpu.mig_capable:
                with pytest.raises(DivisionRefused) as raised:
                    bench.gpus.division(gpu.uuid)
                assert raised.value.reason is RefusalReason.NOT_CAPABLE
                continue
            found = bench.gpus.division(gpu.uuid)
            assert (found.mig, found.pending) == (gpu.mig_mode, gpu.mig_pending)
            assert sum(len(each.compute) for each in found.instances) == len(gpu.migs)
            assert {each.profile for each in found.instances} <= {
                each.name for each in found.profiles
            }
            assert all(parse_profile(each.name) for each in found.profiles)
            assert all(each.size and each.starts and each.most for each in found.profiles)


class MigSuite(ReadOnlyMigSuite):
    """All tests."""

    def test_calls_fail_unless_open(self, bench: MigFixture) -> None:
        for call in (
            lambda: bench.gpus.division("GPU-1"),
            lambda: bench.gpus.set_mig_mode("GPU-1", on=True),
            lambda: bench.gpus.destroy_instance("GPU-1", 0),
        ):
            with pytest.raises(GpusUnavailable, match="not open"):
                call()
        assert not bench.held()

    def test_another_gpu_is_refused(self, bench: MigFixture) -> None:
        bench.gpus.open()
        for uuid in ("", "GPU-of-another-machine"):
            with pytest.raises(DivisionRefused) as raised:
                bench.gpus.division(uuid)
            assert raised.value.reason is RefusalReason.UNKNOWN_GPU

    def test_the_mode_changes_and_the_library_is_closed(self, bench: MigFixture) -> None:
        uuid = uuid_of(bench)
        before = bench.gpus.division(uuid)
        assert (before.mig, before.pending, before.instances) == (False, False, ())
        assert bench.gpus.set_mig_mode(uuid, on=True) is Activation.DONE
        assert not bench.held()
        bench.gpus.open()
        found = bench.gpus.division(uuid)
        assert (found.mig, found.pending, found.instances) == (True, True, ())
        assert [gpu.mig_mode for gpu in bench.gpus.describe()][:2] == [True, False]
        assert bench.gpus.set_mig_mode(uuid, on=False) is Activation.DONE
        bench.gpus.open()
        assert bench.gpus.division(uuid) == before

    def test_profiles_are_named_as_facts_name_them(self, bench: MigFixture) -> None:
        uuid = with_mig(bench)
        found = bench.gpus.division(uuid).profiles
        assert {each.name: (each.id, each.slices, each.size, each.starts) for each in found} == {
            "1g.10gb": (19, 1, 1, tuple(range(7))),
            "1g.10gb+me": (20, 1, 1, tuple(range(7))),
            "1g.20gb": (15, 1, 2, (0, 2, 4, 6)),
            "2g.20gb": (14, 2, 2, (0, 2, 4)),
            "3g.40gb": (9, 3, 4, (0, 4)),
            "4g.40gb": (5, 4, 4, (0,)),
            "7g.80gb": (0, 7, 8, (0,)),
        }
        create(bench, uuid, "1g.10gb+me", 3)
        create(bench, uuid, "3g.40gb", 4, 1, 2)
        assert shape(bench.gpus.division(uuid)) == [("1g.10gb+me", 3, (1,)), ("3g.40gb", 4, (2, 1))]
        migs = bench.gpus.describe()[0].migs
        assert sorted(mig.profile for mig in migs) == ["1c.3g.40gb", "1g.10gb+me", "2c.3g.40gb"]
        numbers = {each.id for each in bench.gpus.division(uuid).instances}
        assert {mig.gpu_instance for mig in migs} == numbers

    def test_an_instance_without_compute_instances_is_seen_here_alone(
        self, bench: MigFixture
    ) -> None:
        uuid = with_mig(bench)
        profile = bench.gpus.division(uuid).profiles[0]
        bench.gpus.create_instance(uuid, profile, start=2, compute=())
        (left,) = bench.gpus.division(uuid).instances
        assert (left.start, left.compute) == (2, ())
        assert bench.gpus.describe()[0].migs == ()
        bench.gpus.destroy_instance(uuid, left.id)
        assert bench.gpus.division(uuid).instances == ()

    def test_instances_are_destroyed_one_by_one(self, bench: MigFixture) -> None:
        uuid = with_mig(bench)
        for start in range(7):
            create(bench, uuid, "1g.10gb", start)
        assert len(bench.gpus.describe()[0].migs) == 7
        for left in range(6, -1, -1):
            bench.gpus.destroy_instance(uuid, bench.gpus.division(uuid).instances[0].id)
            assert [each[1] for each in shape(bench.gpus.division(uuid))] == [*range(7 - left, 7)]
        with pytest.raises(DivisionRefused) as raised:
            bench.gpus.destroy_instance(uuid, 1)
        assert raised.value.reason is RefusalReason.REFUSED

    def test_what_has_no_room_is_refused(self, bench: MigFixture) -> None:
        uuid = with_mig(bench)
        create(bench, uuid, "1g.10gb", 2)
        before = bench.gpus.division(uuid)
        with pytest.raises(DivisionRefused) as raised:
            create(bench, uuid, "4g.40gb", 0)
        assert raised.value.reason is RefusalReason.NO_ROOM
        assert bench.gpus.division(uuid) == before

    @pytest.mark.parametrize("activation", [Activation.RESET_REQUIRED, Activation.IN_USE])
    def test_a_mode_that_stays_pending_can_be_taken_back(
        self, bench: MigFixture, activation: Activation
    ) -> None:
        uuid = uuid_of(bench)
        if activation is Activation.IN_USE:
            bench.use(0, used=True)
        else:
            bench.set_activation(activation)
        assert bench.gpus.set_mig_mode(uuid, on=True) is activation
        bench.gpus.open()
        found = bench.gpus.division(uuid)
        assert (found.mig, found.pending) == (False, True)
        assert bench.gpus.describe()[0].mig_pending is True
        assert bench.gpus.set_mig_mode(uuid, on=False) is Activation.DONE
        bench.gpus.open()
        assert bench.gpus.division(uuid).pending is False

    def test_an_instance_in_use_stays(self, bench: MigFixture) -> None:
        uuid = with_mig(bench)
        create(bench, uuid, "7g.80gb", 0)
        bench.use(0, used=True)
        before = bench.gpus.division(uuid)
        with pytest.raises(DivisionRefused) as raised:
            bench.gpus.destroy_instance(uuid, before.instances[0].id)
        assert raised.value.reason is RefusalReason.IN_USE
        assert bench.gpus.division(uuid) == before
        bench.use(0, used=False)
        bench.gpus.destroy_instance(uuid, before.instances[0].id)

    def test_without_permission_nothing_changes(self, bench: MigFixture) -> None:
        uuid = with_mig(bench)
        create(bench, uuid, "3g.40gb", 0)
        before = bench.gpus.division(uuid)
        bench.forbid()
        for call in (
            lambda: create(bench, uuid, "3g.40gb", 4),
            lambda: bench.gpus.destroy_instance(uuid, before.instances[0].id),
            lambda: bench.gpus.set_mig_mode(uuid, on=False),
        ):
            with pytest.raises(DivisionRefused) as raised:
                call()
            assert raised.value.reason is RefusalReason.NO_PERMISSION
            bench.gpus.open()
        assert bench.gpus.division(uuid) == before

    @pytest.mark.parametrize("problem", [GpuProblem.HUNG, GpuProblem.LOST])
    def test_a_gpu_with_a_problem_is_named_and_the_others_are_divided(
        self, bench: MigFixture, problem: GpuProblem
    ) -> None:
        uuids = [with_mig(bench, index) for index in (0, 1)]
        bench.set_problem(1, problem)
        with pytest.raises(GpusUnavailable) as raised:
            bench.gpus.division(uuids[1])
        assert raised.value.problem is problem
        create(bench, uuids[0], "7g.80gb", 0)
        assert shape(bench.gpus.division(uuids[0])) == [("7g.80gb", 0, (7,))]
