"""The program of the driver service."""

import os
from pathlib import Path
from typing import Any

from libs.contracts.identities import Writer
from libs.runtime.program import OneShot, Role, run_program
from services.roles import LazyRoles


def agent_role() -> Role[Any]:
    from services.agent_role import agent_role
    from services.driver.node import agent

    return agent_role(
        agent.DriverAgentSettings,
        agent.run,
        writer=Writer.DRIVER,
        make_linux=agent.make_linux,
        make_runtime=agent.make_runtime,
    )


def plugin_role() -> Role[Any]:
    from services.agent_role import agent_role
    from services.driver.plugin import agent, settings

    return agent_role(settings.PluginSettings, agent.run, writer=Writer.PLUGIN)


def dra_role() -> Role[Any]:
    from services.agent_role import agent_role
    from services.driver.dra import agent, settings

    return agent_role(settings.DraSettings, agent.run, writer=Writer.DRA)


def cluster_role() -> Role[Any]:
    from services.driver.cluster import role

    return Role(role.DriverClusterSettings, role.start)


def undo_role() -> Role[Any]:
    from services.driver.node import agent, undo

    return Role(agent.DriverAgentSettings, undo.start)


def uninstall_role() -> OneShot:
    from services.driver.uninstall.role import main

    return main


def uninstall_kinds_role() -> OneShot:
    from services.driver.uninstall.role import remove_kinds

    return remove_kinds


def gate_role() -> OneShot:
    from libs.host.tree import Tree
    from services.driver.node.gate_program import wait_at_gate

    # The host's folder is mounted at its own path, so the pod's root serves as the host's.
    return lambda: wait_at_gate(Tree(Path("/")), os.environ)


if __name__ == "__main__":
    roles = {
        "agent": agent_role,
        "plugin": plugin_role,
        "dra": dra_role,
        "cluster": cluster_role,
        "gate": gate_role,
        "undo": undo_role,
        "uninstall": uninstall_role,
        "uninstall-kinds": uninstall_kinds_role,
    }
    run_program("driver", LazyRoles(roles))
