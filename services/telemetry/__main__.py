"""The program of the telemetry service."""

from typing import Any

from libs.contracts.identities import Writer
from libs.runtime.program import Role, run_program
from services.roles import LazyRoles


def agent_role() -> Role[Any]:
    from services.agent_role import agent_role
    from services.telemetry.node import agent

    return agent_role(agent.TelemetrySettings, agent.run_and_export, writer=Writer.TELEMETRY)


def cluster_role() -> Role[Any]:
    from services.cluster_role import cluster_role
    from services.telemetry.cluster import role

    return cluster_role(
        role.TelemetryClusterSettings, role.run_and_export, writer=Writer.TELEMETRY_CLUSTER
    )


if __name__ == "__main__":
    run_program("telemetry", LazyRoles({"agent": agent_role, "cluster": cluster_role}))
