"""Names of MIG profiles."""

from collections.abc import Mapping

import pytest

from libs.host.gpus.mig import gigabytes, profile_name

MIB = 1 << 20
A100, H100, H200, B200 = (mib * MIB for mib in (40960, 81559, 143771, 183359))


@pytest.mark.parametrize(
    ("memory", "gpu", "expected"),
    [
        (4864, A100, 5),
        (9856, A100, 10),
        (19968, A100, 20),
        (40192, A100, 40),
        (9984, H100, 10),
        (16384, H200, 18),
        (33024, H200, 35),
        (71168, H200, 71),
        (22528, B200, 23),
    ],
)
def test_memory_is_rounded_half_up(memory: int, gpu: int, expected: int) -> None:
    assert gigabytes(memory, gpu) == expected


def device(**more: object) -> Mapping[str, object]:
    values = {"gpu_slices": 1, "compute_slices": 1, "memory_mib": 9984, "profile": 0}
    return {"name": b"NVIDIA H100 80GB HBM3 MIG 2g.20gb", **values, **more}


@pytest.mark.parametrize(
    ("profile", "suffix"),
    [
        *((number, "") for number in (0, 1, 2, 3, 4, 5, 6, 9)),
        (0x7, "+me"),
        (0x8, "+me"),
        (0xA, "+gfx"),
        (0xB, "+gfx"),
        (0xC, "+gfx"),
        (0x11, "+gfx"),
        (0xD, "-me"),
        (0xE, "-me"),
        (0xF, "+me.all"),
        (0x10, "+me.all"),
    ],
)
def test_the_kind_of_profile_is_the_suffix(profile: int, suffix: str) -> None:
    assert profile_name(device(profile=profile), gpu_memory=H100) == f"1g.10gb{suffix}"


def test_a_part_of_a_gpu_instance_is_named_first() -> None:
    part = device(gpu_slices=3, compute_slices=1, memory_mib=40448)
    assert profile_name(part, gpu_memory=H100) == "1c.3g.40gb"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "1g.10gb+me"),
        (b"NVIDIA A100 MIG 1c.3g.20gb", "1c.3g.20gb"),
        (b"NVIDIA B200 MIG 1g.24gb-me", "1g.24gb-me"),
        (b"NVIDIA B200 MIG 1g.24gb+me.all", "1g.24gb+me.all"),
        (b"NVIDIA H100", "1g.10gb"),
        (b"NVIDIA MIG 1g.10gb\xff", "1g.10gb"),
    ],
)
def test_without_its_number_the_profile_is_that_of_the_name(name: bytes, expected: str) -> None:
    assert profile_name(device(name=name, profile=None), gpu_memory=H100) == expected


@pytest.mark.parametrize("lacking", ["gpu_slices", "compute_slices", "memory_mib"])
@pytest.mark.parametrize("value", [None, 0])
def test_without_its_size_the_profile_is_that_of_the_name(lacking: str, value: int | None) -> None:
    assert profile_name(device(**{lacking: value}), gpu_memory=H100) == "2g.20gb"
    assert profile_name(device(), gpu_memory=None) == "2g.20gb"
    assert profile_name({}, gpu_memory=H100) == ""
