"""What tests cost, in seconds of a processor: they say the same on a busy machine.

Counted are the process of the test and all below it. Those that still run count as well: a server
that serves many tests would else be the cost of the one that ends it.
"""

import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.run.progress import children

SIMULATED: Final = 2.0
ON_A_GROUND: Final = 20.0
"""CPU seconds. A test that takes more says why (marker `dear`), or is of the soak."""
DEAREST: Final = 10


class Cost(NamedTuple):
    """What one test took."""

    test: str
    cpu: float
    on_ground: bool
    reason: str = ""
    """Why it may be dear."""

    @property
    def is_over(self) -> bool:
        return self.cpu > (ON_A_GROUND if self.on_ground else SIMULATED) and not self.reason


TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, and of all that it has started."""
    own, waited = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    ended = own.ru_utime + own.ru_stime + waited.ru_utime + waited.ru_stime
    return ended + sum(map(_of_process, children()))


def _of_process(pid: int) -> float:
    """Return the CPU seconds of a process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS


def machine_seconds() -> float:
    """Return the CPU seconds of all processes of this machine since it was started."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    user, nice, system, _, _, irq, soft_irq = (int(field) for field in fields[:7])
    return (user + nice + system + irq + soft_irq) / 100


def lines(costs: Sequence[Cost]) -> list[str]:
    """Return the dearest tests, the sums by folder, and what is over its budget for no reason."""
    if not costs:
        return []
    dearest = sorted(costs, key=lambda cost: -cost.cpu)
    told = ["CPU seconds of the dearest tests:"]
    told += [f"{cost.cpu:8.1f}  {short(cost.test)}" for cost in dearest[:DEAREST]]
    folders: dict[str, list[float]] = {}
    for cost in costs:
        folders.setdefault(_folder(cost.test), []).append(cost.cpu)
    told.append("CPU seconds by folder:")
    for folder, all_cpu in sorted(folders.items(), key=lambda each: -sum(each[1])):
        told.append(f"{sum(all_cpu):8.1f}  {folder} ({len(all_cpu)} tests)")
    over = [cost for cost in dearest if cost.is_over]
    if over:
        told.append(
            f"Over the budget ({SIMULATED:.0f} CPU seconds; on a ground {ON_A_GROUND:.0f}) without"
            " a reason: make them cheaper, mark them `dear` with the reason, or `soak`:"
        )
        told += [f"{cost.cpu:8.1f}  {short(cost.test)}" for cost in over]
    return told


def short(test: str, most: int = 120) -> str:
    """Return the name of a test, cut where a parameter makes it longer than a line."""
    name = test.removeprefix("tests/")
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _folder(test: str) -> str:
    """Return the first folders of a test: `tests/unit/bus`."""
    *folders, _ = test.partition("::")[0].split("/")
    return "/".join(folders[:3])
