"""The program of the simulated cluster and of a simulated machine."""

from demo import cluster_process, machine_process
from libs.runtime.program import Role, run_program

if __name__ == "__main__":
    run_program(
        "demo",
        {
            "cluster": Role(cluster_process.ClusterSettings, cluster_process.start),
            "machine": Role(machine_process.MachineSettings, machine_process.start),
        },
    )
