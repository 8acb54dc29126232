"""The scheduler's program: wiring only."""

from sluice.bus.joining import join
from sluice.contracts.identities import Writer
from sluice.kube.reaching import reach
from sluice.runtime.process import Process
from sluice.runtime.program import Role, program
from sluice.runtime.service import Service
from sluice.scheduler.role import run
from sluice.scheduler.settings import SchedulerSettings


async def start(process: Process[SchedulerSettings], service: Service) -> None:
    """Both connections, and what lives on them."""
    settings, clock = process.settings, process.clock
    kube = await reach(process=process, service=service, kubeconfig=settings.kubeconfig)
    bus = await join(
        process=process,
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
