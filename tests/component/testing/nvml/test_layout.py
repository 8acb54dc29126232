"""The structures are the same in C, in Python and in pynvml, of which those of calls are made."""

import ctypes
import os
from pathlib import Path

import pynvml
import pytest

from libs.testing.nvml import NotBuilt, StandIn, abi, profiles
from libs.testing.nvml.build import compile_libraries, find_compiler
from libs.testing.nvml.layout import Machine


def test_the_metrics_follow_the_head_of_a_request() -> None:
    theirs = pynvml.c_nvmlGpmMetricsGet_t
    assert ctypes.sizeof(abi.GpmMetricsGet) == theirs.metrics.offset


def test_the_features_follow_the_head_of_an_answer_about_licences() -> None:
    theirs = pynvml.c_nvmlGridLicensableFeatures_v4_t
    assert ctypes.sizeof(abi.GridLicensableFeatures) == theirs.gridLicensableFeatures.offset


def test_what_is_no_field_cannot_be_set() -> None:
    machine = Machine()
    with pytest.raises(AttributeError):
        machine.gpus[0].readings.temprature_c = 90  # pyright: ignore[reportAttributeAccessIssue]


def test_the_compiler_agrees_and_has_no_warning(tmp_path: Path) -> None:
    try:
        compiler = find_compiler(os.environ)
    except NotBuilt as error:
        pytest.skip(str(error))
    compile_libraries(compiler, tmp_path, "-O0", "-Werror")
    header = (tmp_path / "layout.h").read_text()
    assert f"sizeof(struct machine) == {ctypes.sizeof(Machine)}" in header
    for name, kind in abi.STRUCTURES.items():
        assert f"sizeof(struct {name}) == {ctypes.sizeof(kind)}" in header


def test_a_drift_between_c_and_python_does_not_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from libs.testing.nvml import build

    try:
        compiler = find_compiler(os.environ)
    except NotBuilt as error:
        pytest.skip(str(error))
    headers = build.headers()
    drifted = headers["layout.h"].replace("int32_t temperature_c;", "int64_t temperature_c;")
    monkeypatch.setattr(build, "headers", lambda: {**headers, "layout.h": drifted})
    with pytest.raises(NotBuilt, match="size of struct readings"):
        compile_libraries(compiler, tmp_path, "-fsyntax-only")


def test_two_of_a_kind_differ_only_by_place_and_seed(tmp_path: Path) -> None:
    first = StandIn.create(tmp_path / "1", profiles.L40S, seed=1)
    again = StandIn.create(tmp_path / "2", profiles.L40S, seed=1)
    other = StandIn.create(tmp_path / "3", profiles.L40S, seed=2)
    uuids = [gpu.uuid for gpu in first.gpus]
    assert len(set(uuids)) == 4
    assert [gpu.uuid for gpu in again.gpus] == uuids
    assert not {gpu.uuid for gpu in other.gpus} & set(uuids)
