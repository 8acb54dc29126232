"""What processes have cost: memory and CPU, as Linux counts them. Reads files, so it blocks."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

_MIB = 1024


class ProcessCost(msgspec.Struct, frozen=True):
    """Of one process."""

    memory_mib: float
    """Its part of what is in memory: pages that several share are divided among them."""
    cpu_seconds: float


def process_cost(pid: int, *, proc: Path = Path("/proc")) -> ProcessCost:
    """Of this process, up to now."""
    rollup = (proc / str(pid) / "smaps_rollup").read_text()
    pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
    # The name may hold blanks and brackets: what is counted comes behind the last of them.
    fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ProcessCost(int(pss.split()[1]) / _MIB, ticks / os.sysconf("SC_CLK_TCK"))


def table(costs: Mapping[str, ProcessCost], *, seconds: float) -> Iterator[str]:
    """One line each, and their sum."""
    for name, one in costs.items():
        yield f"  {name:<17} {one.memory_mib:6.0f} MiB  {one.cpu_seconds:6.1f} s of CPU"
    memory = _sum(one.memory_mib for one in costs.values())
    used = _sum(one.cpu_seconds for one in costs.values())
    yield (
        f"  {'together':<17} {memory:6.0f} MiB  {used:6.1f} s of CPU"
        f" in {seconds:.0f} s: {used / seconds:.2f} of a core"
    )


def _sum(numbers: Iterable[float]) -> float:
    return sum(numbers, 0.0)
