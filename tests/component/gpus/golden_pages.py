"""The golden pages: every field of each machine, as the real pynvml reads it from the stand-in.

`python -m tests.component.gpus.golden_pages` rewrites them. A page has the first GPU, which works
and has had an XID, and the last one, which is idle; those between are as the last.
"""

import asyncio
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from libs.host.gpus.port import GpuHandle
from libs.host.machine import InlineOffload, Machine
from libs.host.podresources.assignments import PodContainer, PodsByGpu
from libs.host.tree import Tree
from libs.runtime.clock import SystemClock
from libs.runtime.metrics import Metrics
from services.telemetry.cluster.page import ALL_FIELDS
from services.telemetry.exposition import NodeSamples, render, rows
from services.telemetry.node.sampler import Sampler, Sweep, TelemetryMetrics
from tests.component.gpus.machine import StandInMachine, let_work

GOLDEN: Final = Path(__file__).parent / "golden"
MACHINES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "h100-80gb-x8": ("H100-80GB", ()),
    "a100-40gb-mig": ("A100-40GB", ("3g.20gb", "1g.5gb")),
    "t4": ("T4", ()),
    "l40s-x4": ("L40S", ()),
    "gb200-x4": ("GB200", ()),
}
"""By golden file: the profile, and the GPU instances of its first GPU."""

NODE: Final = "gpu-1.example"
TRAINER: Final = PodContainer("ml", "trainer-0", "main")
_LABELS: Final = re.compile(r"(?<=\w)\{(.*)\}(?= \S+$)")


def page(bench: StandInMachine, *, instances: tuple[str, ...]) -> str:
    """Return the page of every field of a machine."""
    if instances:
        bench.divide(*instances)
    first = bench.stand_in.gpus[0]
    let_work(first)
    sampler = Sampler(
        machine=Machine(tree=Tree(bench.root), offload=InlineOffload(), gpus=bench.gpus),
        hold=GpuHandle(bench.gpus),
        clock=SystemClock(),
        metrics=TelemetryMetrics(Metrics(version="0")),
        on_sweep=_judge_nothing,
    )
    asyncio.run(_sweep(sampler, bench))
    sweep = sampler.current
    assert sweep is not None
    node = NodeSamples(
        node=NODE,
        driver_version=sweep.driver_version,
        samples=sweep.samples,
        gpus={gpu.uuid: gpu for gpu in sweep.gpus},
    )
    pods: PodsByGpu = {(first.uuid, 1 if instances else None): (TRAINER,)}
    found = rows([node], ALL_FIELDS, hostname_label="hostname", pods=pods)
    return render(ALL_FIELDS.metrics, list(found)).decode()


def shown(text: str, *, gpus: int) -> str:
    """Return a page for people: of two GPUs, labels in a list, and the absent fields."""
    kept = re.compile(rf'#|\w+{{gpu="(0|{gpus - 1})"')
    numbers: dict[str, int] = {}

    def number(labels: re.Match[str]) -> str:
        return f"{{({numbers.setdefault(labels[1], len(numbers) + 1)})}}"

    lines = [_LABELS.sub(number, line) for line in text.splitlines() if kept.match(line)]
    names = [metric.field.name for metric in ALL_FIELDS.metrics]
    absent = [name for name in names if f"# TYPE {name} " not in text]
    return "\n".join(
        (
            *(f"({place}) = {labels}" for labels, place in numbers.items()),
            "",
            *lines,
            "",
            "Absent on this machine:",
            *absent,
            "",
        )
    )


def values(text: str, gpu: int) -> list[tuple[str, str]]:
    """Return the names and values of one GPU's samples."""
    return re.findall(rf'^(\w+){{gpu="{gpu}",.*}} (\S+)$', text, re.MULTILINE)


async def _sweep(sampler: Sampler, bench: StandInMachine) -> None:
    await sampler.sweep()  # rates have a value from the second sweep on
    bench.fail(bench.stand_in.gpus[0].uuid, 31)
    bench.settle()
    await sampler.sweep()


async def _judge_nothing(_sweep: Sweep | None, _xids: Mapping[str, tuple[int, ...]]) -> None: ...


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name, (profile, instances) in MACHINES.items():
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            bench = StandInMachine(Path(folder), profile=profile, patch=patch)
            try:
                text = page(bench, instances=instances)
                gpus = len(bench.stand_in.gpus)
            finally:
                bench.close()
        (GOLDEN / f"{name}.txt").write_text(shown(text, gpus=gpus))


if __name__ == "__main__":
    main()
