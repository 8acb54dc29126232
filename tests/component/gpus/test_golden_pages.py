"""The metrics page of each machine, line by line, and that no field is missing on all of them."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.telemetry.metric_list import DEFAULT_LIST
from tests.component.gpus import golden_pages
from tests.component.gpus.golden_pages import ALL_FIELDS, GOLDEN, MACHINES, page, shown, values
from tests.component.gpus.machine import StandInMachine


@pytest.mark.parametrize(
    ("bench", "name"),
    [({"profile": profile}, name) for name, (profile, _) in MACHINES.items()],
    indirect=["bench"],
    ids=list(MACHINES),
)
def test_the_page_of_a_machine_is_its_golden_page(bench: StandInMachine, name: str) -> None:
    gpus, (_, instances) = len(bench.stand_in.gpus), MACHINES[name]
    text = page(bench, instances=instances)
    assert shown(text, gpus=gpus) == (GOLDEN / f"{name}.txt").read_text(), (
        f"if the change is wanted: python -m {golden_pages.__name__}"
    )
    for gpu in range(1, gpus):
        assert values(text, gpu) == values(text, gpus - 1)
    assert list(text_string_to_metric_families(text))


def test_every_field_is_measured_on_some_machine() -> None:
    absent = [set(_absent((GOLDEN / f"{name}.txt").read_text())) for name in MACHINES]
    assert set.intersection(*absent) == set()


def test_of_the_default_list_only_what_a_machine_lacks_is_absent() -> None:
    """GPM needs Hopper, memory temperature HBM, and row remapping Ampere."""
    default = {metric.field.name.removeprefix("DCGM_FI_") for metric in DEFAULT_LIST.metrics}
    profiling = {"PROF_GR_ENGINE_ACTIVE", "PROF_PIPE_TENSOR_ACTIVE", "PROF_DRAM_ACTIVE"}
    remaps = {
        "DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "DEV_CORRECTABLE_REMAPPED_ROWS",
        "DEV_ROW_REMAP_FAILURE",
    }
    links = {"DEV_NVLINK_BANDWIDTH_TOTAL"}
    wanted = {
        "h100-80gb-x8": set[str](),
        "gb200-x4": set[str](),
        "a100-40gb-mig": profiling,
        "l40s-x4": {*profiling, *links, "DEV_MEMORY_TEMP"},
        "t4": {*profiling, *links, *remaps, "DEV_MEMORY_TEMP"},
    }
    for name in MACHINES:
        absent = _absent((GOLDEN / f"{name}.txt").read_text())
        assert {each.removeprefix("DCGM_FI_") for each in absent} & default == wanted[name], name


def _absent(golden: str) -> list[str]:
    names = golden.partition("Absent on this machine:\n")[2].split()
    assert all(re.fullmatch(r"DCGM_FI_\w+", name) for name in names)
    assert set(names) < {metric.field.name for metric in ALL_FIELDS.metrics}
    return names
