"""The scheduler's program: wiring only."""

from libs.bus.joining import join
from libs.contracts.identities import Writer
from libs.kube.reaching import reach
from libs.runtime.process import Process
from libs.runtime.program import Role, program
from libs.runtime.service import Service
from services.scheduler.role import run
from services.scheduler.settings import SchedulerSettings


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
