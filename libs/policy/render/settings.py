"""Settings of the installation that apply to all operands: namespace, images, bus address."""

import msgspec

from libs.policy.kinds.common import EnvVar
from libs.policy.normalize import DEFAULT_PULL_POLICY


class AgentImages(msgspec.Struct, frozen=True, kw_only=True):
    """Full paths of Sluice's images."""

    discovery: str
    driver: str
    """The image of the driver agent, the device plugin and the gate."""
    validator: str
    telemetry: str


class RenderSettings(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    images: AgentImages
    pull_policy: str = DEFAULT_PULL_POLICY
    pull_secrets: tuple[str, ...] = ()
    """Added to every pod."""
    env: tuple[EnvVar, ...] = ()
    """Variables of every agent, such as the address of the bus."""
    artefacts: str = "sluice-driver-artefacts"
    """The ConfigMap that lists the driver artefacts of the host method."""
