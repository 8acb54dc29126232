"""GPUs, for people. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from rich.console import Group, RenderableType

from libs.contracts.device import UNKNOWN
from libs.contracts.health import HealthState
from libs.ctl.text import plural, some
from libs.ctl.views.layout import Column, fact, line, listing
from libs.fleet.gpus import FleetGpu
from libs.fleet.node import DriverState

_COLUMNS: Final[Sequence[Column[FleetGpu]]] = (
    Column("NODE", lambda gpu: gpu.node),
    Column("GPU", lambda gpu: f"{gpu.index}", right=True),
    Column("PRODUCT", lambda gpu: gpu.product),
    Column(
        "MEMORY",
        lambda gpu: f"{gpu.memory_mib / 1024:.0f} GiB" if gpu.memory_mib else "?",
        right=True,
    ),
    Column("HEALTH", lambda gpu: gpu.health),
    Column("MIG", lambda gpu: gpu.mig, is_wide=True),
    Column("DRIVER", lambda gpu: gpu.driver, is_wide=True),
    Column("UUID", lambda gpu: gpu.uuid, is_wide=True),
)


def gpus_view(
    gpus: Sequence[FleetGpu],
    *,
    without: Sequence[str] = (),
    width: int,
    every: bool = False,
    wide: bool = False,
) -> RenderableType:
    """Return how many are healthy, a row for each other or for every GPU, and what is wrong;
    `without` are nodes whose GPUs no driver has shown yet.
    """
    bare = [line(_no_driver_yet(without, wide=wide))] if without else []
    if not gpus:
        none = line("Kubernetes shows no GPU: no discovery agent has reported one.")
        return Group(*(bare or [none]))
    shown = gpus if every or wide else _to_look_at(gpus)
    sick = [fact(about, text) for about, text in _sick(gpus)]
    lacking = [fact(about, text) for about, text in _without_driver(gpus)]
    rows = listing(_COLUMNS, shown, width=width, wide=wide)
    return Group(line(_summary(gpus)), rows, *sick, *lacking, *bare)


def _no_driver_yet(nodes: Sequence[str], *, wide: bool) -> str:
    count = "1 node with GPUs has" if len(nodes) == 1 else f"{len(nodes)} nodes with GPUs have"
    return f"{count} no driver yet: {some(nodes, shown=len(nodes) if wide else 12)}"


def _sick(gpus: Sequence[FleetGpu]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, once for all GPUs of a node for which it is the same."""
    told = [gpu for gpu in gpus if gpu.because and not _lacks_driver(gpu)]
    for (node, health, why), found in groupby(
        told, key=lambda gpu: (gpu.node, gpu.health, _why(gpu))
    ):
        yield f"{node} GPU {', '.join(f'{gpu.index}' for gpu in found)} {health}", why


def _why(gpu: FleetGpu) -> str:
    return f"{gpu.because} ({gpu.remedy})" if gpu.remedy else gpu.because


def _lacks_driver(gpu: FleetGpu) -> bool:
    """Whether its node has no driver that could be asked, and it had not failed before."""
    return gpu.driver_state is not DriverState.RUNS and gpu.health == UNKNOWN


def _without_driver(gpus: Sequence[FleetGpu]) -> Iterator[tuple[str, str]]:
    """Yield the nodes whose GPUs have no driver, each with how many and why."""
    for node, found in groupby(filter(_lacks_driver, gpus), key=lambda gpu: gpu.node):
        first, *others = found
        yield f"{node}, {plural(1 + len(others), 'GPU')}", _why(first)


def _is_judged(gpus: Sequence[FleetGpu]) -> bool:
    return any(gpu.health != UNKNOWN or _lacks_driver(gpu) for gpu in gpus)


def _to_look_at(gpus: Sequence[FleetGpu]) -> Sequence[FleetGpu]:
    """Return those that are not healthy; none where nobody judges them."""
    if not _is_judged(gpus):
        return ()
    return [gpu for gpu in gpus if gpu.health != HealthState.OK and not _lacks_driver(gpu)]


def _summary(gpus: Sequence[FleetGpu]) -> str:
    count = f"{plural(len(gpus), 'GPU')} on {plural(len({gpu.node for gpu in gpus}), 'node')}"
    if not _is_judged(gpus):
        return f"{count}; no telemetry agent has reported on their health"
    without = sum(map(_lacks_driver, gpus))
    states = Counter(gpu.health for gpu in gpus if not _lacks_driver(gpu))
    parts = [f"{states.pop(HealthState.OK, 0)} healthy"]
    parts += [f"{number} {state}" for state, number in sorted(states.items())]
    parts += [f"{without} without a driver"] if without else []
    return ", ".join([count, *parts])
