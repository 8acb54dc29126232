"""GPUs, for people. Pure."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from libs.ctl.answers import Gpu
from libs.ctl.views.layout import Column, fact, line, listing

_COLUMNS = (
    Column("NODE"),
    Column("GPU", right=True),
    Column("PRODUCT"),
    Column("MEMORY", right=True),
    Column("HEALTH"),
    Column("MIG", is_wide=True),
    Column("DRIVER", is_wide=True),
    Column("UUID", is_wide=True),
)


def gpus_view(gpus: Sequence[Gpu], *, width: int, wide: bool = False) -> RenderableType:
    """Return a row for each GPU, and what is wrong with those that have a reason."""
    if not gpus:
        return line("Kubernetes shows no GPU: no discovery agent has reported one.")
    sick = [
        fact(
            f"{gpu.node} GPU {gpu.index} {gpu.health}",
            f"{gpu.because} ({gpu.remedy})" if gpu.remedy else gpu.because,
        )
        for gpu in gpus
        if gpu.because
    ]
    return Group(listing(_COLUMNS, map(_row, gpus), width=width, wide=wide), *sick)


def _row(gpu: Gpu) -> tuple[str, ...]:
    memory = f"{gpu.memory_mib / 1024:.0f} GiB" if gpu.memory_mib else "?"
    return (
        gpu.node,
        f"{gpu.index}",
        gpu.product,
        memory,
        gpu.health,
        gpu.mig,
        gpu.driver,
        gpu.uuid,
    )
