"""What discovery's cluster role can be told."""

from sluice.bus.joining import NatsSettings
from sluice.runtime.process import ProcessSettings


class DiscoveryClusterSettings(ProcessSettings, frozen=True, kw_only=True):
    """Settings of discovery's cluster role."""

    nats: NatsSettings = NatsSettings()
    kubeconfig: str = ""
    """Empty: as the environment or the pod says."""
    namespace: str
    """Of the lease."""
    pod_name: str = "discovery-cluster"
    """By which people recognise who holds the lease."""
