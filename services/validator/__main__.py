"""The program of the validator service."""

from typing import Any

from libs.contracts.identities import Writer
from libs.runtime.program import Role, run_program
from services.roles import LazyRoles


def agent_role() -> Role[Any]:
    from services.agent_role import agent_role
    from services.validator.node import agent

    return agent_role(
        agent.ValidatorSettings,
        agent.run_and_export,
        writer=Writer.VALIDATOR,
        make_cuda=agent.make_cuda,
    )


def cluster_role() -> Role[Any]:
    from services.cluster_role import cluster_role
    from services.validator.cluster import role

    return cluster_role(role.FleetSettings, role.run, writer=Writer.VALIDATOR_CLUSTER)


if __name__ == "__main__":
    run_program("validator", LazyRoles({"agent": agent_role, "cluster": cluster_role}))
