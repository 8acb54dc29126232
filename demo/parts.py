"""The program of what the demo simulates: the cluster, and one machine of it."""

from demo import cluster, machine
from libs.runtime.program import Role, program

if __name__ == "__main__":
    program(
        "demo",
        {
            "cluster": Role(cluster.ClusterSettings, cluster.start),
            "machine": Role(machine.MachineSettings, machine.start),
        },
    )
