"""The Service of the telemetry agents, and the ServiceMonitor by which Prometheus finds it.

Both have the names of the GPU Operator's objects for dcgm-exporter.
"""

from collections.abc import Iterator
from typing import Final

from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.exporter import ExporterService
from libs.policy.kinds.service_monitor import ServiceMonitor
from libs.policy.render.agent_pods import METRICS_PORT
from libs.policy.render.pod_fields import JsonObject, drop_empty
from libs.policy.render.rendered import (
    COMMON_LABELS,
    EXPORTER,
    MONITOR_GROUP,
    MONITOR_KIND,
    Operand,
    RenderedObject,
    RenderSettings,
    agent_selector,
)

_PORT_NAME: Final = "gpu-metrics"
_LABELS: Final = {**COMMON_LABELS, "app": EXPORTER}


def render_exporter(policy: ClusterPolicy, settings: RenderSettings) -> Iterator[RenderedObject]:
    """Render the Service, and the ServiceMonitor if it is enabled."""
    section = policy.spec.dcgm_exporter
    yield RenderedObject(operand=Operand.TELEMETRY, object=_service(section.service, settings))
    if section.service_monitor.enabled:
        monitor = _monitor(section.service_monitor, settings)
        yield RenderedObject(operand=Operand.TELEMETRY, object=monitor)


def _service(service: ExporterService, settings: RenderSettings) -> JsonObject:
    port = {
        "name": _PORT_NAME,
        "port": METRICS_PORT,
        "targetPort": METRICS_PORT,
        "protocol": "TCP",
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": EXPORTER,
            "namespace": settings.namespace,
            "labels": _LABELS,
            "annotations": {"prometheus.io/scrape": "true"},
        },
        "spec": drop_empty(
            {
                "type": service.type,
                "internalTrafficPolicy": service.internal_traffic_policy,
                "selector": agent_selector(EXPORTER),
                "ports": [port],
            }
        ),
    }


def _monitor(monitor: ServiceMonitor, settings: RenderSettings) -> JsonObject:
    endpoint = {
        "port": _PORT_NAME,
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
            "name": EXPORTER,
            "namespace": settings.namespace,
            "labels": {**_LABELS, **monitor.additional_labels},
        },
        "spec": {
            "jobLabel": "app",
            "namespaceSelector": {"matchNames": [settings.namespace]},
            "selector": {"matchLabels": agent_selector(EXPORTER)},
            "endpoints": [drop_empty(endpoint)],
        },
    }
