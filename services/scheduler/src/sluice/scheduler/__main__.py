"""The scheduler's program: wiring only."""

from pathlib import Path
from typing import Any, cast

from sluice.bus.joining import join
from sluice.contracts.identities import Writer
from sluice.kube.config import connect
from sluice.kube.errors import Misconfigured
from sluice.runtime.fatal import Fatal
from sluice.runtime.process import Process
from sluice.runtime.program import Role, program
from sluice.runtime.service import Service
from sluice.scheduler.role import run
from sluice.scheduler.settings import SchedulerSettings


async def start(process: Process[SchedulerSettings], service: Service) -> None:
    """Both connections, and what lives on them."""
    settings, clock = process.settings, process.clock
    try:
        transport = await connect(
            clock=clock, kubeconfig=Path(settings.kubeconfig) if settings.kubeconfig else None
        )
    except Misconfigured as error:
        raise Fatal(str(error)) from error
    kube = await service.enter("kube", transport)
    bus = await join(
        process=cast("Process[Any]", process),
        service=service,
        settings=settings.nats,
        writer=Writer.SCHEDULER,
    )
    await run(
        settings,
        kube=kube,
        bus=bus,
        clock=clock,
        ids=process.ids,
        random=process.random,
        metrics=process.metrics,
        service=service,
    )


if __name__ == "__main__":
    program("scheduler", {"scheduler": Role(SchedulerSettings, start)})
