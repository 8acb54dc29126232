"""The section of ClusterPolicy for the metrics of each node's state."""

from typing import Annotated

from libs.policy.kinds.common import AgentSection
from libs.policy.kinds.service_monitor import ServiceMonitor
from libs.policy.shapes import About


class NodeStatusExporter(AgentSection, frozen=True, kw_only=True):
    """Metrics of each node's validation."""

    enabled: Annotated[
        bool,
        About(
            "Whether nodes export what is proven of them.",
            effect="the validator's agent serves gpu_operator_node_* at port 8000",
        ),
    ] = False
    service_monitor: Annotated[ServiceMonitor, About("The ServiceMonitor for Prometheus.")] = (
        ServiceMonitor()
    )
