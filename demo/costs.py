"""The memory and CPU that the processes of the demo use."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

_MIB = 1024


class ProcessCost(msgspec.Struct, frozen=True):
    """The memory and CPU of a process."""

    memory_mib: float
    """Proportional set size: shared pages are divided among the processes that share them."""
    cpu_seconds: float


def process_cost(pid: int, *, proc: Path = Path("/proc")) -> ProcessCost:
    """Return the cost of a process up to now."""
    rollup = (proc / str(pid) / "smaps_rollup").read_text()
    pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
    # The process name may contain blanks and brackets: the fields begin after the last bracket.
    fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    ticks = sum(map(int, fields[11:15]))  # its own, and those of its children that have ended
    return ProcessCost(int(pss.split()[1]) / _MIB, ticks / os.sysconf("SC_CLK_TCK"))


def total_cost(pid: int, *, proc: Path = Path("/proc")) -> ProcessCost:
    """Return the cost of a process and its children."""
    costs = [process_cost(pid, proc=proc)]
    for file in (proc / str(pid) / "task").glob("*/children"):
        for child in file.read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):  # it ends meanwhile
                costs.append(process_cost(int(child), proc=proc))
    memory = sum(cost.memory_mib for cost in costs)
    return ProcessCost(memory, sum(cost.cpu_seconds for cost in costs))


def cost_lines(costs: Mapping[str, ProcessCost], *, seconds: float) -> Iterator[str]:
    """Return a line for each process, and one for their sum."""
    for name, cost in costs.items():
        yield f"  {name:<17} {cost.memory_mib:6.0f} MiB  {cost.cpu_seconds:6.1f} s of CPU"
    memory = sum((cost.memory_mib for cost in costs.values()), 0.0)
    cpu = sum((cost.cpu_seconds for cost in costs.values()), 0.0)
    yield (
        f"  {'total':<17} {memory:6.0f} MiB  {cpu:6.1f} s of CPU"
        f" in {seconds:.0f} s: {cpu / seconds:.2f} of a core"
    )
