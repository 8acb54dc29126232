"""What whoever runs Sluice says of the operands: where they go and where our images are."""

import msgspec

from libs.policy.kinds.common import EnvVar
from libs.policy.normalize import DEFAULT_PULL_POLICY


class AgentImages(msgspec.Struct, frozen=True, kw_only=True):
    """The whole path of each of our images."""

    discovery: str
    driver: str
    """Of the driver agent, the device plugin and the gate."""
    validator: str
    telemetry: str


class RenderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Given once, for all operands."""

    namespace: str
    images: AgentImages
    pull_policy: str = DEFAULT_PULL_POLICY
    pull_secrets: tuple[str, ...] = ()
    """For every pod, beside what people name for one."""
    env: tuple[EnvVar, ...] = ()
    """For every agent: how it reaches the bus."""
    artefacts: str = "sluice-driver-artefacts"
    """The ConfigMap that names the artefacts of drivers on the host itself."""
