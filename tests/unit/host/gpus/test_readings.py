"""From a measurement to a sample."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts import telemetry
from libs.contracts.gpu_forms import Complaints
from libs.contracts.telemetry import GpuSample
from libs.host.gpus import readings
from libs.host.gpus.protocol import Sampled
from tests.builders import gpus
from tests.builders.gpus import batch, gpu

GPU, EMPTY = gpu(2), gpus.sample(2)
NAN, INFINITE = float("nan"), float("inf")


def sample(
    values: dict[str, float], before: Sampled | None = None
) -> tuple[dict[str, Any], set[str]]:
    """Return what was read, and what was complained about."""
    complaints = Complaints()
    found = readings.sample(GPU, Sampled(1, 100.0, values), before, complaints)
    fields = {
        name: getattr(found, name)
        for name in GpuSample.__struct_fields__
        if getattr(found, name) != getattr(EMPTY, name)
    }
    return fields, set(complaints.found)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {}),
        ({"temperature_c": 51}, {"temperature_c": 51}),
        ({"power_mw": 412_500}, {"power_w": 412.5}),
        ({"memory_free": (5 << 20) + 1}, {"framebuffer_free_mib": 5}),
        ({"graphics_active": 75.0}, {"graphics_active": 0.75}),
        ({"graphics_active": 100.2}, {"graphics_active": 1.0}),
        ({"graphics_active": NAN}, {}),
        ({"pcie_tx_mib": 1.5}, {"pcie_tx_bytes_per_s": 1572864}),
        ({"pcie_tx_mib": NAN}, {}),
        ({"pcie_rx_kb": 7}, {"pcie_rx_bytes_per_s": 7000}),
        ({"performance_state": 32}, {}),
        ({"energy_mj": 7.0}, {"energy_mj": 7}),
    ],
)
def test_a_value_is_converted(values: dict[str, float], expected: dict[str, Any]) -> None:
    assert sample(values) == (expected, set())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature_c", 201),
        ("temperature_c", -1),
        ("temperature_c", NAN),
        ("memory_temperature_c", 0xFFFFFFFF),
        ("gpu_utilization", 101),
        ("power_mw", 0xFFFFFFFF),
        ("energy_mj", (1 << 64) - 1),
        ("energy_mj", INFINITE),
        ("memory_used", (1 << 64) - 1),
        ("sm_active", -0.5),
        ("sm_active", 102.0),
        ("sm_active", INFINITE),
        ("pcie_tx_mib", INFINITE),
        ("pcie_rx_mib", -1.0),
        ("performance_state", 16),
        ("remap_failure", 2),
    ],
)
def test_a_value_that_cannot_be_true_is_left_out_alone(name: str, value: float) -> None:
    fields, complaints = sample({name: value, "sm_clock_mhz": 1980})
    assert fields == {"sm_clock_mhz": 1980}
    assert complaints == {name.removesuffix("_mib")}


def links(at: float, tx: float, rx: float = 0) -> Sampled:
    return Sampled(0, at, {"nvlink_tx_kib": tx, "nvlink_rx_kib": rx})


@pytest.mark.parametrize(
    ("before", "rate"),
    [
        (None, None),
        (links(90.0, 0, 0), 3_000),
        (links(90.0, 10_000_000, 10_000_000), 1_000),
        (links(90.0, 30_000_000), 0),
        (links(90.0, 30_000_001), None),
        (links(100.0, 0), None),
        (links(101.0, 0), None),
        (Sampled(0, 90.0, {"nvlink_tx_kib": 1}), None),
    ],
)
def test_links_have_a_rate_between_two_measurements(
    before: Sampled | None, rate: int | None
) -> None:
    now = links(100.0, 20_000_000, 10_000_000)
    found = readings.sample(GPU, now, before, Complaints())
    assert found.nvlink_mb_per_s == rate


NAMES = sorted(
    {*readings.AS_READ, "memory_free", "memory_used", "memory_reserved", "sm_active", "power_mw"}
    | {"pcie_tx_mib", "pcie_rx_mib", "pcie_tx_kb", "nvlink_tx_kib", "nvlink_rx_kib"}
)
values = st.dictionaries(
    st.sampled_from(NAMES), st.one_of(st.integers(-(1 << 63), (1 << 64) - 1), st.floats())
)


@given(values, values, st.floats(0, 1e9))
def test_whatever_nvml_returns_can_be_sent(
    now: dict[str, float], before: dict[str, float], at: float
) -> None:
    found = readings.sample(GPU, Sampled(2, at, now), Sampled(1, 1.0, before), Complaints())
    sent = batch(found)
    assert telemetry.decode(telemetry.encode(sent)) == sent
