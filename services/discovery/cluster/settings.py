"""What discovery's cluster role can be told."""

from libs.bus.joining import NatsSettings
from libs.runtime.process import ProcessSettings


class DiscoveryClusterSettings(ProcessSettings, frozen=True, kw_only=True):
    """Settings of discovery's cluster role."""

    nats: NatsSettings = NatsSettings()
    kubeconfig: str = ""
    """Empty: as the environment or the pod says."""
    namespace: str
    """Of the lease."""
    pod_name: str = "discovery-cluster"
    """By which people recognise who holds the lease."""
