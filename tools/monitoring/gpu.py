"""The dashboard of GPUs, with the panels that people know from that of NVIDIA's dcgm-exporter."""

from typing import Final

from monitoring.model import Dashboard, Panel, PanelKind, Query, Row, Variable

_CHOSEN: Final = '{hostname=~"$node",gpu=~"$gpu"}'
_LEGEND: Final = "{{hostname}} GPU {{gpu}}"


def _graph(
    title: str, field: str, unit: str, *, factor: int = 1, limits: tuple[float, float] | None = None
) -> Panel:
    scaled = f" * {factor}" if factor != 1 else ""
    query = Query(f"{field}{_CHOSEN}{scaled}", _LEGEND)
    return Panel(title=title, queries=(query,), unit=unit, limits=limits)


_KNOWN: Final = Row(
    "GPUs",
    (
        _graph("GPU temperature", "DCGM_FI_DEV_GPU_TEMP", "celsius"),
        Panel(
            title="Mean temperature",
            queries=(Query(f"avg(DCGM_FI_DEV_GPU_TEMP{_CHOSEN})"),),
            kind=PanelKind.GAUGE,
            unit="celsius",
            limits=(0, 100),
            wrong_from=87,
            width=6,
        ),
        Panel(
            title="Power in total",
            queries=(Query(f"sum(DCGM_FI_DEV_POWER_USAGE{_CHOSEN})"),),
            kind=PanelKind.NUMBER,
            unit="watt",
            width=6,
        ),
        _graph("GPU power usage", "DCGM_FI_DEV_POWER_USAGE", "watt"),
        _graph("GPU SM clocks", "DCGM_FI_DEV_SM_CLOCK", "hertz", factor=1_000_000),
        _graph("GPU utilization", "DCGM_FI_DEV_GPU_UTIL", "percent", limits=(0, 100)),
        _graph("GPU framebuffer memory used", "DCGM_FI_DEV_FB_USED", "decmbytes"),
        _graph(
            "Tensor core utilization",
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
            "percentunit",
            limits=(0, 1),
        ),
        _graph("Memory temperature", "DCGM_FI_DEV_MEMORY_TEMP", "celsius"),
    ),
)
_ERRORS: Final = Row(
    "Errors",
    (
        Panel(
            title="Last XID",
            help="docs/health.md#xids says what each one means.",
            queries=(Query(f"DCGM_FI_DEV_XID_ERRORS{_CHOSEN}", f"{_LEGEND} {{{{err_msg}}}}"),),
        ),
        Panel(
            title="PCIe retries",
            queries=(
                Query(f"rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER{_CHOSEN}[$__rate_interval])", _LEGEND),
            ),
        ),
        Panel(
            title="Remapped rows",
            queries=(
                Query(
                    f"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{_CHOSEN}", f"{_LEGEND} uncorrectable"
                ),
                Query(f"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS{_CHOSEN}", f"{_LEGEND} correctable"),
            ),
        ),
        Panel(
            title="Energy",
            help="The mean power within the last minutes, from the counter of energy.",
            queries=(
                Query(
                    f"rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{_CHOSEN}[$__rate_interval]) / 1000",
                    _LEGEND,
                ),
            ),
            unit="watt",
        ),
    ),
)

GPU: Final = Dashboard(
    name="gpu",
    title="Sluice / GPU",
    help="The GPUs of the fleet by the fields of dcgm-exporter.",
    variables=(
        Variable(name="node", metric="DCGM_FI_DEV_GPU_TEMP", label="hostname"),
        Variable(name="gpu", metric="DCGM_FI_DEV_GPU_TEMP", label="gpu"),
    ),
    rows=(_KNOWN, _ERRORS),
)
