"""Telemetry's program."""

from typing import Any

from libs.contracts.identities import Writer
from libs.runtime.http import HttpServer
from libs.runtime.logs import logger
from libs.runtime.program import run_program
from libs.runtime.service import Service
from services.agent_role import agent_role
from services.cluster_role import cluster_role
from services.telemetry.cluster import role
from services.telemetry.cluster.role import TelemetryClusterSettings
from services.telemetry.node import agent
from services.telemetry.node.agent import TelemetrySettings

_log = logger()


async def run_agent(settings: TelemetrySettings, /, *, service: Service, **ports: Any) -> None:
    """Run the agent, and serve its pages."""
    pages = await agent.run(settings, service=service, **ports)
    exporter = await service.enter("exporter", HttpServer(settings.exporter, pages))
    host, port = exporter.address
    _log.info("exporter started", host=host, port=port)


if __name__ == "__main__":
    run_program(
        "telemetry",
        {
            "agent": agent_role(TelemetrySettings, run_agent, writer=Writer.TELEMETRY),
            "cluster": cluster_role(
                TelemetryClusterSettings, role.run, writer=Writer.TELEMETRY_CLUSTER
            ),
        },
    )
