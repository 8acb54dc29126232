"""The structures are those of pynvml, and the same in C and in Python."""

import ctypes
import os
from enum import IntEnum
from pathlib import Path
from typing import Any

import pynvml
import pytest

from libs.testing.nvml import NotBuilt, StandIn, profiles
from libs.testing.nvml import abi as a
from libs.testing.nvml import abi_mig as m
from libs.testing.nvml.build import compile_libraries, find_compiler
from libs.testing.nvml.codes import FabricState, RecoveryAction, Return, ValueType
from libs.testing.nvml.layout import Machine
from libs.testing.nvml.structures import c_name

SAME: dict[type[ctypes.Structure], str] = {
    a.PciInfo: "nvmlPciInfo_t",
    a.MemoryInfo: "c_nvmlMemory_t",
    a.MemoryInfoV2: "c_nvmlMemory_v2_t",
    a.UtilizationRates: "c_nvmlUtilization_t",
    a.TemperatureV1: "c_nvmlTemperature_v1_t",
    a.FieldValue: "c_nvmlFieldValue_t",
    a.EventData: "c_nvmlEventData_t",
    a.EccErrorCounts: "c_nvmlEccErrorCounts_t",
    a.SramEccStatusV1: "c_nvmlEccSramErrorStatus_v1_t",
    a.RowRemapperHistogram: "c_nvmlRowRemapperHistogramValues",
    a.ProcessInfo: "c_nvmlProcessInfo_v3_t",
    a.FabricInfo: "c_nvmlGpuFabricInfo_t",
    a.FabricInfoV2: "c_nvmlGpuFabricInfo_v2_t",
    a.FabricInfoV3: "c_nvmlGpuFabricInfo_v3_t",
    a.GpmSupport: "c_nvmlGpmSupport_t",
    m.DeviceAttributes: "c_nvmlDeviceAttributes",
    m.Placement: "c_nvmlGpuInstancePlacement_t",
    m.GpuInstanceInfo: "c_nvmlGpuInstanceInfo_t",
    m.GpuInstanceProfile: "c_nvmlGpuInstanceProfileInfo_t",
    m.GpuInstanceProfileV2: "c_nvmlGpuInstanceProfileInfo_v2_t",
    m.ComputeInstanceInfo: "c_nvmlComputeInstanceInfo_t",
    m.ComputeInstanceProfile: "c_nvmlComputeInstanceProfileInfo_t",
    m.ComputeInstanceProfileV2: "c_nvmlComputeInstanceProfileInfo_v2_t",
}

PREFIXES: dict[type[IntEnum], str] = {
    Return: "NVML_ERROR_",
    ValueType: "NVML_VALUE_TYPE_",
    RecoveryAction: "NVML_GPU_RECOVERY_ACTION_",
    FabricState: "NVML_GPU_FABRIC_STATE_",
}


def shape(kind: Any) -> tuple[int, list[tuple[int, int]]]:
    """Return the size, and offset and size of each field."""
    fields = [getattr(kind, name) for name, *_ in kind._fields_]
    return ctypes.sizeof(kind), [(field.offset, field.size) for field in fields]


@pytest.mark.parametrize("ours", SAME, ids=lambda kind: kind.__name__)
def test_a_structure_has_the_layout_of_pynvml(ours: type[ctypes.Structure]) -> None:
    assert shape(ours) == shape(getattr(pynvml, SAME[ours]))


def test_the_metrics_follow_the_head_of_a_request() -> None:
    theirs = pynvml.c_nvmlGpmMetricsGet_t
    assert ctypes.sizeof(a.GpmMetricsGet) == theirs.metrics.offset
    assert ctypes.sizeof(a.GpmMetric) == ctypes.sizeof(pynvml.c_nvmlGpmMetric_t)


def test_the_features_follow_the_head_of_an_answer_about_licences() -> None:
    theirs = pynvml.c_nvmlGridLicensableFeatures_v4_t
    assert ctypes.sizeof(a.GridLicensableFeatures) == theirs.gridLicensableFeatures.offset


def test_every_structure_of_a_call_is_compared() -> None:
    partly = {a.GpmMetric, a.GpmMetricsGet, a.GridLicensableFeatures}
    assert {*a.STRUCTURES, *m.STRUCTURES} == {*SAME, *partly}


@pytest.mark.parametrize("enum", PREFIXES, ids=lambda enum: enum.__name__)
def test_numbers_are_those_of_pynvml(enum: type[IntEnum]) -> None:
    prefix = PREFIXES[enum]
    theirs = {item.name: getattr(pynvml, prefix + item.name, None) for item in enum}
    if enum is Return:
        theirs["SUCCESS"] = pynvml.NVML_SUCCESS
    assert theirs == {item.name: item.value for item in enum}


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
    for kind in SAME:
        assert f"sizeof(struct {c_name(kind.__name__)}) == {ctypes.sizeof(kind)}" in header


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
