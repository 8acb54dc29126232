"""Operands that policies ask for and this version of Sluice does not have.

While a policy switches one on it is not ready, and its status names the section.
"""

from collections.abc import Iterator

import msgspec

from libs.policy.kinds.agents import CDI_ALONE
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import NO_HOST_INSTALLATION, GpuClusterPolicy
from libs.policy.pool import ClusterWidePolicy
from libs.policy.render.rendered import Operand


class UnbuiltOperand(msgspec.Struct, frozen=True, kw_only=True):
    """An operand that a section of a policy switches on without effect."""

    operand: Operand
    section: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.section} is switched on, but {self.problem}: {self.remedy}"


def unbuilt_operands(policy: ClusterWidePolicy) -> Iterator[UnbuiltOperand]:
    """Yield the operands that a policy asks for in vain."""
    if isinstance(policy, GpuClusterPolicy) and policy.spec.driver.enabled:
        yield UnbuiltOperand(
            operand=Operand.DRIVER,
            section="spec.driver",
            problem=NO_HOST_INSTALLATION,
            remedy="install the driver with the machine and set enabled to false, or use a"
            " ClusterPolicy, which runs the driver in a container",
        )
    if isinstance(policy, ClusterPolicy):
        yield from _unbuilt_parts(policy)


def _unbuilt_parts(policy: ClusterPolicy) -> Iterator[UnbuiltOperand]:
    spec = policy.spec
    if spec.toolkit.enabled and not spec.cdi.enabled:
        yield UnbuiltOperand(
            operand=Operand.TOOLKIT,
            section="spec.toolkit",
            problem=f"{CDI_ALONE}, which spec.cdi switches off",
            remedy="set spec.cdi.enabled to true, or spec.toolkit.enabled to false where another"
            " toolkit is installed",
        )
    config = spec.device_plugin.config
    if spec.device_plugin.enabled and config.name and not config.default:
        yield UnbuiltOperand(
            operand=Operand.DEVICE_PLUGIN,
            section="spec.devicePlugin.config",
            problem="the label nvidia.com/device-plugin.config of nodes is not read in this"
            " version, so no configuration is in use",
            remedy="name that of all nodes in default",
        )
