"""The program of the discovery service."""

from typing import Any

from libs.contracts.identities import Writer
from libs.runtime.program import Role, run_program
from services.roles import LazyRoles


def agent_role() -> Role[Any]:
    from services.agent_role import agent_role
    from services.discovery.node import agent

    return agent_role(agent.DiscoverySettings, agent.run, writer=Writer.DISCOVERY)


def cluster_role() -> Role[Any]:
    from services.cluster_role import cluster_role
    from services.discovery.cluster import role

    return cluster_role(role.DiscoveryClusterSettings, role.run, writer=Writer.DISCOVERY_CLUSTER)


if __name__ == "__main__":
    run_program("discovery", LazyRoles({"agent": agent_role, "cluster": cluster_role}))
