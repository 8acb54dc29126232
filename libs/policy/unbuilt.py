"""Operands that policies ask for and this version of Sluice does not have.

The status of a policy names each section that switches one on. The policy is not ready while pods
may lack GPUs for that reason.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from libs.policy.kinds.agents import CDI_ALONE
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY, ClusterPolicy
from libs.policy.kinds.unsupported import ONLY_FOR_VMS
from libs.policy.pool import ClusterWidePolicy
from libs.policy.render.rendered import Operand
from libs.policy.shapes import reason_without_effect

ABSENT: Final = ("dcgm", "sandboxWorkloads")
"""The sections whose operands do not exist here."""


class UnbuiltOperand(msgspec.Struct, frozen=True, kw_only=True):
    """An operand that a section of a policy switches on without effect."""

    operand: Operand | None
    """What is not ready for that reason; None if pods get GPUs all the same."""
    section: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.section} is switched on, but {self.problem}: {self.remedy}"


def unbuilt_operands(policy: ClusterWidePolicy) -> Iterator[UnbuiltOperand]:
    """Yield the operands that a policy asks for in vain."""
    if isinstance(policy, ClusterPolicy):
        yield from _unbuilt_parts(policy)
        yield from _absent(policy)


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


def _absent(policy: ClusterPolicy) -> Iterator[UnbuiltOperand]:
    """Yield the operands of the GPU Operator that do not exist here."""
    sections = ABSENT
    if policy.spec.sandbox_workloads.enabled:
        sections += ONLY_FOR_VMS
    for field in CLUSTER_POLICY.spec_shape.fields:
        if field.name in sections and getattr(policy.spec, field.attribute).enabled:
            (switch,) = (each for each in field.shape.fields if each.name == "enabled")
            yield UnbuiltOperand(
                operand=None,
                section=f"spec.{field.name}",
                problem=reason_without_effect(switch.about, field.about.no_effect_because),
                remedy="set enabled to false",
            )
