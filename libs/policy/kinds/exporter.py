"""`spec.dcgmExporter` of a ClusterPolicy: metrics of GPUs."""

from typing import Annotated

import msgspec

from libs.policy.kinds.common import AgentSection, Labels
from libs.policy.kinds.service_monitor import ServiceMonitor
from libs.policy.shapes import About, PolicyStruct

NO_MONITOR = "Sluice creates ServiceMonitors for its agents only"
NO_POD_LABELS = "the telemetry agent does not read pods"
NO_JOB_MAPPING = "the telemetry agent does not map jobs"


class ExporterConfig(PolicyStruct, frozen=True, kw_only=True):
    """Which measurements are exported."""

    name: Annotated[
        str,
        About(
            "The ConfigMap that lists the metrics, under the key dcgm-metrics.csv.",
            effect="mounted into the telemetry agent, which follows its changes",
            unset="the default list of dcgm-exporter",
        ),
    ] = ""


class ExporterService(PolicyStruct, frozen=True, kw_only=True):
    """The Service in front of the exporter."""

    type: Annotated[
        str, About("The type of the Service.", effect="set on the Service", unset="ClusterIP")
    ] = ""
    internal_traffic_policy: Annotated[
        str,
        About(
            "The internalTrafficPolicy of the Service.",
            effect="set on the Service",
            unset="Cluster",
        ),
    ] = ""


class HpcJobMapping(PolicyStruct, frozen=True, kw_only=True):
    """Mapping of GPUs to HPC jobs, read from files."""

    enabled: Annotated[bool, About("Whether job mapping files are read.", unsupported=True)] = False
    directory: Annotated[
        str, About("The directory with the files.", unset="/var/lib/dcgm-exporter/job-mapping")
    ] = ""


class DcgmExporter(AgentSection, frozen=True, kw_only=True):
    """GPU metrics for Prometheus."""

    enabled: Annotated[
        bool, About("Whether GPU metrics are collected.", effect="deploys the telemetry agent")
    ] = True
    annotations: Annotated[
        Labels, About("Annotations of its pods.", effect="set on the telemetry agent's pods")
    ] = {}
    config: Annotated[ExporterConfig, About("Which metrics are exported.")] = ExporterConfig()
    service_monitor: Annotated[ServiceMonitor, About("The ServiceMonitor for Prometheus.")] = (
        ServiceMonitor()
    )
    service: Annotated[ExporterService, About("The Service of the exporter.")] = ExporterService()
    host_pid: Annotated[
        bool,
        About(
            "Whether the pod shares the host's process namespace.",
            no_effect_because="the telemetry agent reports no processes",
        ),
    ] = msgspec.field(name="hostPID", default=False)
    enable_pod_labels: Annotated[
        bool,
        About(
            "Whether metrics carry the labels of pods.",
            no_effect_because=NO_POD_LABELS,
            unsupported=True,
        ),
    ] = False
    enable_pod_uid: Annotated[
        bool,
        About(
            "Whether metrics carry the UIDs of pods.",
            no_effect_because=NO_POD_LABELS,
            unsupported=True,
        ),
    ] = msgspec.field(name="enablePodUID", default=False)
    pod_label_allowlist_regex: Annotated[
        tuple[str, ...],
        About("Regular expressions for the pod labels to export.", no_effect_because=NO_POD_LABELS),
    ] = ()
    hpc_job_mapping: Annotated[
        HpcJobMapping, About("Mapping of GPUs to HPC jobs.", no_effect_because=NO_JOB_MAPPING)
    ] = HpcJobMapping()
