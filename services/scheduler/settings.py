"""What the scheduler can be told."""

from libs.bus.joining import NatsSettings
from libs.runtime.process import ProcessSettings


class SchedulerSettings(ProcessSettings, frozen=True, kw_only=True):
    """Settings of the scheduler."""

    nats: NatsSettings = NatsSettings()
    kubeconfig: str = ""
    """Empty: as the environment or the pod says."""
    namespace: str
    """Of the operands, and of the lease."""
    pod_name: str = "scheduler"
    """By which people recognise who holds the lease."""
