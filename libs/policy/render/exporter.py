"""The Services of agents that export metrics, and ServiceMonitors by which Prometheus finds them.

All have the names of the GPU Operator's objects.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.exporter import ExporterService
from libs.policy.kinds.service_monitor import ServiceMonitor
from libs.policy.render.agent_pods import METRICS_PORT, NODE_STATUS_PORT
from libs.policy.render.pod_fields import JsonObject, drop_empty
from libs.policy.render.rendered import (
    COMMON_LABELS,
    EXPORTER,
    MONITOR_GROUP,
    MONITOR_KIND,
    NODE_STATUS,
    VALIDATOR,
    Operand,
    RenderedObject,
    RenderSettings,
    agent_selector,
)


class _Exporter(msgspec.Struct, frozen=True, kw_only=True):
    operand: Operand
    name: str
    app: str
    """The label of the pods."""
    port: int
    port_name: str

    @property
    def labels(self) -> dict[str, str]:
        return {**COMMON_LABELS, "app": self.name}


_GPUS: Final = _Exporter(
    operand=Operand.TELEMETRY,
    name=EXPORTER,
    app=EXPORTER,
    port=METRICS_PORT,
    port_name="gpu-metrics",
)
_NODES: Final = _Exporter(
    operand=Operand.NODE_STATUS,
    name=NODE_STATUS,
    app=VALIDATOR,
    port=NODE_STATUS_PORT,
    port_name="node-status-metrics",
)


def render_exporter(policy: ClusterPolicy, settings: RenderSettings) -> Iterator[RenderedObject]:
    """Render the Service of the telemetry agents, and the ServiceMonitor if it is enabled."""
    section = policy.spec.dcgm_exporter
    yield from _render(_GPUS, section.service, section.service_monitor, settings)


def render_node_status(policy: ClusterPolicy, settings: RenderSettings) -> Iterator[RenderedObject]:
    """Render the Service of the validator agents, and the ServiceMonitor if it is enabled."""
    monitor = policy.spec.node_status_exporter.service_monitor
    yield from _render(_NODES, ExporterService(), monitor, settings)


def _render(
    exporter: _Exporter, service: ExporterService, monitor: ServiceMonitor, settings: RenderSettings
) -> Iterator[RenderedObject]:
    found = _service(exporter, service, settings)
    yield RenderedObject(operand=exporter.operand, object=found)
    if monitor.enabled:
        found = _monitor(exporter, monitor, settings)
        yield RenderedObject(operand=exporter.operand, object=found)


def _service(exporter: _Exporter, service: ExporterService, settings: RenderSettings) -> JsonObject:
    port = {
        "name": exporter.port_name,
        "port": exporter.port,
        "targetPort": exporter.port,
        "protocol": "TCP",
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": exporter.name,
            "namespace": settings.namespace,
            "labels": exporter.labels,
            "annotations": {"prometheus.io/scrape": "true"},
        },
        "spec": drop_empty(
            {
                "type": service.type,
                "internalTrafficPolicy": service.internal_traffic_policy,
                "selector": agent_selector(exporter.app),
                "ports": [port],
            }
        ),
    }


def _monitor(exporter: _Exporter, monitor: ServiceMonitor, settings: RenderSettings) -> JsonObject:
    endpoint = {
        "port": exporter.port_name,
        "path": "/metrics",
        "interval": monitor.interval,
        "scrapeTimeout": monitor.scrape_timeout,
        "honorLabels": monitor.honor_labels or None,
        "relabelings": list(monitor.relabelings),
    }
    return {
        "apiVersion": f"{MONITOR_GROUP}/v1",
        "kind": MONITOR_KIND,
        "metadata": {
            "name": exporter.name,
            "namespace": settings.namespace,
            "labels": {**exporter.labels, **monitor.additional_labels},
        },
        "spec": {
            "jobLabel": "app",
            "namespaceSelector": {"matchNames": [settings.namespace]},
            "selector": {"matchLabels": agent_selector(exporter.name)},
            "endpoints": [drop_empty(endpoint)],
        },
    }
