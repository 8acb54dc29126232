"""Discovery's program."""

from libs.contracts.identities import Writer
from libs.runtime.program import run_program
from services.agent_role import agent_role
from services.cluster_role import cluster_role
from services.discovery.cluster import role
from services.discovery.cluster.role import DiscoveryClusterSettings
from services.discovery.node import agent
from services.discovery.node.agent import DiscoverySettings

if __name__ == "__main__":
    run_program(
        "discovery",
        {
            "agent": agent_role(DiscoverySettings, agent.run, writer=Writer.DISCOVERY),
            "cluster": cluster_role(
                DiscoveryClusterSettings, role.run, writer=Writer.DISCOVERY_CLUSTER
            ),
        },
    )
