"""The changes that divide GPUs: from every division to every other, also after a stop halfway."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.contracts.commands import GpuGeometry
from libs.host.gpus.division import GpuDivision, GpuInstance, InstanceProfile
from libs.host.gpus.memory_mig import MemoryMig
from libs.policy.mig.profiles import largest_first
from libs.testing.nvml.products import A100, H100, Product
from services.driver.node.mig_plan import (
    Create,
    Destroy,
    Impossible,
    SetMode,
    Step,
    found_geometry,
    plan,
)

UUID, OTHER = "GPU-a", "GPU-b"
PROFILES = {each.name: each for each in H100.mig}

GEOMETRIES: list[tuple[str, ...]] = [
    (),
    ("1g.10gb",) * 7,
    ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"),
    ("3g.40gb", "3g.40gb"),
    ("4g.40gb", "1g.10gb+me", "1g.10gb", "1g.10gb"),
    ("7g.80gb",),
    ("1g.20gb",) * 4,
    ("2c.3g.40gb", "1c.3g.40gb", "2g.20gb"),
    ("1c.7g.80gb",) * 7,
]


def on(*profiles: str, uuid: str = UUID) -> GpuGeometry:
    return GpuGeometry(uuid=uuid, index=0, mig=True, profiles=largest_first(profiles))


OFF = GpuGeometry(uuid=UUID, index=0)


def machine(*uuids: str, product: Product = H100) -> MemoryMig:
    return MemoryMig(uuids or (UUID,), product.mig, is_used=lambda _uuid: False)


def take(mig: MemoryMig, step: Step) -> None:
    match step:
        case SetMode():
            mig.set_mode(step.uuid, on=step.on)
        case Destroy():
            mig.destroy(step.uuid, step.instance.id)
        case Create():
            mig.create(step.uuid, step.profile, start=step.start, compute=step.compute)


def planned(mig: MemoryMig, *wanted: GpuGeometry) -> tuple[Step, ...]:
    steps = plan([mig.division(each.uuid) for each in wanted], wanted)
    assert not isinstance(steps, Impossible), steps
    return steps


def divide(mig: MemoryMig, *wanted: GpuGeometry, steps: int = 1000) -> int:
    """Take so many steps, or all; return how many were taken."""
    taken = 0
    while todo := planned(mig, *wanted):
        for step in todo:
            if taken == steps:
                return taken
            take(mig, step)
            taken += 1
    return taken


@pytest.mark.parametrize("names", GEOMETRIES, ids=lambda names: names[0] if names else "undivided")
def test_a_geometry_is_reached_stays_and_is_left(names: tuple[str, ...]) -> None:
    mig, wanted = machine(), on(*names)
    divide(mig, wanted)
    assert found_geometry(mig.division(UUID), index=0) == wanted
    assert planned(mig, wanted) == ()
    divide(mig, OFF)
    division = mig.division(UUID)
    assert (division.mig, division.pending, division.instances) == (False, False, ())


def geometry(names: tuple[str, ...] | None) -> GpuGeometry:
    return OFF if names is None else on(*names)


STATES = st.sampled_from([None, *GEOMETRIES])


@settings(max_examples=40, deadline=None)
@given(st.lists(STATES, min_size=2, max_size=4), st.integers(0, 20))
def test_every_geometry_is_reached_from_every_other_however_often_it_stops(
    names: list[tuple[str, ...] | None], steps: int
) -> None:
    mig = machine()
    for before, after in pairwise(map(geometry, names)):
        divide(mig, before)
        divide(mig, after, steps=steps)
        divide(mig, after)
        assert found_geometry(mig.division(UUID), index=0) == after


def test_instances_that_fit_the_next_geometry_stay() -> None:
    mig = machine()
    divide(mig, on("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"))
    steps = planned(mig, on("3g.40gb", "2g.20gb", "2g.20gb"))
    assert [str(step) for step in steps] == [
        "destroy 1g.10gb at 2",
        "destroy 1g.10gb at 3",
        "create 2g.20gb at 2",
    ]


def test_instances_that_are_in_the_way_go_too() -> None:
    mig = machine()
    divide(mig, on())
    for start in (1, 5):
        mig.create(UUID, PROFILES["1g.10gb"], start=start, compute=(1,))
    divide(mig, on("3g.40gb", "1g.10gb", "1g.10gb"))
    assert [(each.profile, each.start) for each in mig.division(UUID).instances] == [
        ("3g.40gb", 0),
        ("1g.10gb", 4),
        ("1g.10gb", 5),
    ]


def test_an_instance_that_no_fact_shows_is_destroyed_or_completed() -> None:
    mig = machine()
    divide(mig, on("3g.40gb"))
    mig.create(UUID, PROFILES["3g.40gb"], start=4, compute=())
    assert [str(step) for step in planned(mig, on("3g.40gb"))] == ["destroy 3g.40gb at 4"]
    divide(mig, on("3g.40gb", "3g.40gb"))
    assert [each.compute for each in mig.division(UUID).instances] == [(3,), (3,)]


def test_the_same_mig_devices_in_other_instances_are_right() -> None:
    mig = machine()
    divide(mig, on())
    for start in (0, 4):
        mig.create(UUID, PROFILES["3g.40gb"], start=start, compute=(1,))
    assert planned(mig, on("1c.3g.40gb", "1c.3g.40gb")) == ()


@pytest.mark.parametrize("wanted", [True, False])
def test_a_mode_that_would_change_at_the_next_reset_is_set_again(wanted: bool) -> None:
    found = GpuDivision(uuid=UUID, mig=wanted, pending=not wanted)
    steps = plan([found], [replace(OFF, mig=wanted)])
    assert steps == (SetMode(UUID, on=wanted),)


def test_a_driver_that_names_profiles_in_mig_mode_alone_is_asked_then() -> None:
    found = GpuDivision(uuid=UUID, mig=False, pending=False)
    assert plan([found], [on("1g.10gb")]) == (SetMode(UUID, on=True),)


def test_modes_go_first_and_creations_last() -> None:
    mig = machine(UUID, OTHER, "GPU-c")
    divide(mig, on("7g.80gb"), on("7g.80gb", uuid=OTHER))
    wanted = (OFF, on("3g.40gb", uuid=OTHER), on("3g.40gb", uuid="GPU-c"))
    assert [(step.uuid, str(step)) for step in planned(mig, *wanted)] == [
        ("GPU-c", "turn MIG mode on"),
        (UUID, "destroy 7g.80gb at 0"),
        (OTHER, "destroy 7g.80gb at 0"),
        (UUID, "turn MIG mode off"),
        (OTHER, "create 3g.40gb at 0"),
    ]


@pytest.mark.parametrize(
    ("names", "code", "text"),
    [
        (("1g.5gb",), "unknown-profile", "no MIG profile 1g.5gb: its driver names 1g.10gb,"),
        (("no profile",), "unknown-profile", "no MIG profile no profile"),
        (("1g.10gb",) * 8, "no-room", "do not fit on GPU 0 (GPU-a): 1g.10gb, 1g.10gb"),
        (("4g.40gb", "4g.40gb"), "no-room", "4g.40gb, 4g.40gb"),
    ],
)
def test_what_the_gpu_cannot_be_is_said(names: tuple[str, ...], code: str, text: str) -> None:
    mig = machine()
    divide(mig, on())
    steps = plan([mig.division(UUID)], [on(*names)])
    assert isinstance(steps, Impossible)
    assert steps.code == code
    assert text in steps.message


def test_an_instance_of_an_unknown_profile_is_destroyed_and_not_described() -> None:
    found = GpuDivision(
        uuid=UUID,
        mig=True,
        pending=True,
        instances=(GpuInstance(id=3, profile="", start=0, size=1, compute=(1,)),),
        profiles=(InstanceProfile(name="7g.80gb", id=0, slices=7, size=8, starts=(0,)),),
    )
    assert found_geometry(found, index=0).profiles == ()
    steps = plan([found], [on("7g.80gb")])
    assert not isinstance(steps, Impossible)
    assert [str(step) for step in steps] == ["destroy an instance at 0", "create 7g.80gb at 0"]


def test_another_product_has_its_own_profiles() -> None:
    mig = machine(product=A100)
    divide(mig, on("3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"))
    assert planned(mig, on("1g.5gb", "2g.10gb", "3g.20gb", "1g.5gb")) == ()
