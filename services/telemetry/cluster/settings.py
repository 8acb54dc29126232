"""What the cluster role can be told."""

from libs.bus.joining import NatsSettings
from libs.runtime.process import ProcessSettings


class TelemetryClusterSettings(ProcessSettings, frozen=True, kw_only=True):
    """Settings of telemetry's cluster role."""

    nats: NatsSettings = NatsSettings()
    kubeconfig: str = ""
    """Empty: as the environment or the pod says."""
    namespace: str = ""
    pod_name: str = ""
    """Every cluster role is told these two; this one writes nothing, in no namespace."""
