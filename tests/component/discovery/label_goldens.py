"""The golden files of labels: everything that discovery writes to the Node of a machine.

The facts are read by the agent's code: GPUs through the real pynvml and the stand-in for NVIDIA's
library, all else from the machine's files. `python -m tests.component.discovery.label_goldens`
rewrites the files.
"""

import asyncio
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from libs.contracts.facts import Facts, LoadedDriver
from libs.contracts.message import decode, encode
from libs.host.gpus.port import GpuHandle
from libs.host.machine import InlineOffload, Machine
from libs.host.tree import Tree
from libs.policy.kinds.mig import MigStrategy
from libs.runtime.clock import SystemClock
from services.discovery.cluster.decide import LabelPolicy, ReportedFacts
from services.discovery.node.agent import MachineReporter
from tests.component.discovery.label_machines import MACHINES, write_files
from tests.component.gpus.machine import StandInMachine
from tests.unit.discovery.cluster.builders import LABEL_POLICY, labels_after, node

GOLDEN = Path(__file__).parent / "golden"
AT = 1_800_000_000.0
STRATEGIES = tuple(MigStrategy)
NAMES = (
    *(f"{machine}.{strategy}" for machine in MACHINES for strategy in STRATEGIES),
    "H100-80GB.single-of-mixed",
)
"""By machine and MIG strategy; the last one is divided as no `single` can describe it."""


class _Recorder:
    """Takes the place of the reporter to the bus."""

    def __init__(self) -> None:
        self.facts: list[Facts] = []

    def report(self, facts: Facts) -> None:
        self.facts.append(facts)


def golden_path(name: str) -> Path:
    return GOLDEN / f"{name}.txt"


def golden_text(name: str) -> str:
    """Return the labels of a machine, after a comment that describes it."""
    labels = golden_labels(name)
    machine, strategy, geometry = _parts(name)
    gpus = Counter(map(_division, MACHINES[machine].geometry(geometry)))
    divided = ", ".join(f"{count} {division}" for division, count in gpus.items())
    about = f"# {MACHINES[machine].about}\n# MIG strategy {strategy}; GPUs: {divided}\n"
    return about + "".join(f"{key}={labels[key]}\n" for key in sorted(labels))


def _division(profiles: tuple[str, ...]) -> str:
    counts = (f"{count} x {profile}" for profile, count in Counter(profiles).items())
    return f"divided into {', '.join(counts)}" if profiles else "undivided"


def golden_labels(name: str) -> dict[str, str]:
    machine, strategy, geometry = _parts(name)
    facts, driver = _facts(machine, geometry)
    reported = ReportedFacts(facts=facts, driver=driver, at=AT)
    policy = LabelPolicy(cluster=LABEL_POLICY.cluster, mig_strategy=MigStrategy(strategy))
    return labels_after(node(), reported, policy)


def _parts(name: str) -> tuple[str, str, str]:
    """Return machine, strategy, and the strategy that decides the geometry."""
    machine, _, strategy = name.partition(".")
    strategy, _, geometry = strategy.partition("-of-")
    return machine, strategy, geometry or strategy


@cache
def _facts(name: str, geometry: str) -> tuple[Facts, LoadedDriver]:
    """Read the facts of a machine as its agents report them."""
    machine = MACHINES[name]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        bench = StandInMachine(Path(folder), profile=name, patch=patch)
        try:
            write_files(bench.root, machine)
            for index, names in enumerate(machine.geometry(geometry)):
                if names:
                    bench.divide(*names, index=index)
            facts, found = asyncio.run(_scan(bench)), bench.gpus.open()
        finally:
            bench.close()
    return facts, LoadedDriver(version=found.driver_version, cuda=found.cuda)


async def _scan(bench: StandInMachine) -> Facts:
    recorder = _Recorder()
    reporter = MachineReporter(
        machine=Machine(tree=Tree(bench.root), offload=InlineOffload(), gpus=bench.gpus),
        hold=GpuHandle(bench.gpus),
        reporter=cast(Any, recorder),
        on_change=lambda _sections: None,
        clock=SystemClock(),
    )
    await reporter.report()
    return decode(Facts, encode(recorder.facts[0]))


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in NAMES:
        golden_path(each).write_text(golden_text(each))
