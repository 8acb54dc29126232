"""The scheduler's program."""

from libs.contracts.identities import Writer
from libs.runtime.program import run_program
from services.cluster_role import cluster_role
from services.scheduler.role import SchedulerSettings, run

if __name__ == "__main__":
    run_program(
        "scheduler", {"scheduler": cluster_role(SchedulerSettings, run, writer=Writer.SCHEDULER)}
    )
