"""What the cluster role can be told, and what follows from it for the operands."""

from libs.bus.joining import NatsSettings
from libs.policy.kinds.common import EnvVar
from libs.policy.rendering.settings import Images, Settings
from libs.runtime.process import ProcessSettings


class DriverClusterSettings(ProcessSettings, frozen=True, kw_only=True):
    """Settings of driver's cluster role."""

    nats: NatsSettings = NatsSettings()
    kubeconfig: str = ""
    """Empty: as the environment or the pod says."""
    namespace: str
    """Of the operands, and of the lease."""
    pod_name: str = "driver-cluster"
    """By which people recognise who holds the lease."""
    images: Images
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    agent_env: tuple[str, ...] = ()
    """`NAME=value` each: for every agent, how it reaches the bus."""
    artefacts: str = "sluice-driver-artefacts"

    def of_operands(self) -> Settings:
        """The same, as rendering asks for it."""
        pairs = [entry.partition("=") for entry in self.agent_env]
        return Settings(
            namespace=self.namespace,
            images=self.images,
            pull_policy=self.pull_policy,
            pull_secrets=self.pull_secrets,
            env=tuple(EnvVar(name=name, value=value) for name, _, value in pairs),
            artefacts=self.artefacts,
        )
