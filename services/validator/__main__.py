"""Validator's program."""

from libs.contracts.identities import Writer
from libs.runtime.program import run_program
from services.agent_role import agent_role
from services.cluster_role import cluster_role
from services.validator.cluster import role
from services.validator.cluster.role import ValidatorClusterSettings
from services.validator.node import agent
from services.validator.node.agent import ValidatorSettings

if __name__ == "__main__":
    run_program(
        "validator",
        {
            "agent": agent_role(ValidatorSettings, agent.run, writer=Writer.VALIDATOR),
            "cluster": cluster_role(
                ValidatorClusterSettings, role.run, writer=Writer.VALIDATOR_CLUSTER
            ),
        },
    )
