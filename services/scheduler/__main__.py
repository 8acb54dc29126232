"""The scheduler's program: wiring only."""

from libs.bus.connect import connect_bus
from libs.contracts.identities import Writer
from libs.kube.connect import connect
from libs.runtime.process import Process
from libs.runtime.program import Role, run_program
from libs.runtime.service import Service
from services.scheduler.role import SchedulerSettings, run


async def run_scheduler(process: Process[SchedulerSettings], service: Service) -> None:
    """Both connections, and what lives on them."""
    settings = process.settings
    kube = await connect(process=process, service=service, kubeconfig=settings.kubeconfig)
    bus = await connect_bus(
        process=process,
        service=service,
        settings=settings.nats,
        writer=Writer.SCHEDULER,
    )
    await run(
        settings,
        kube=kube,
        bus=bus,
        env=process.env,
        service=service,
    )


if __name__ == "__main__":
    run_program("scheduler", {"scheduler": Role(SchedulerSettings, run_scheduler)})
