"""What one try of a validation found."""

from collections.abc import Mapping
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from libs.contracts.diagnoses import Diagnosis
from libs.contracts.facts import Gpu
from libs.contracts.reports import Resource
from libs.health.node import Records

DRIVER_STEP: Final = "driver"
GPUS_STEP: Final = "gpus"
TOOLKIT_STEP: Final = "toolkit"
CUDA_STEP: Final = "cuda"
PLUGIN_STEP: Final = "plugin"
STEPS: Final = (DRIVER_STEP, GPUS_STEP, TOOLKIT_STEP, CUDA_STEP, PLUGIN_STEP)
"""In their order; each needs those before it."""
DESCRIBED: Final = 3
"""The number of failures that a text describes; it counts the others."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    step: str = DRIVER_STEP
    """The last step that was reached."""
    problem: str = ""
    """What is wrong in that step and what to do, for people; empty if nothing is."""
    diagnosis: Diagnosis | None = None
    """What is wrong, where it has a name."""
    found: Mapping[str, str] = {}
    """By step that was reached after the first: what it found, for people."""
    is_undecided: bool = False
    """The machine does not show the run that was to be validated, which says nothing about it."""
    version: str = ""
    digest: str = ""
    """The install digest that the driver container left."""
    started: float = 0.0
    """Start of the container, or of the modules where there is no container."""
    mig_digest: str = ""
    """Of the geometry of the GPUs; empty if they were not described."""
    runtime_digest: str = ""
    """Of what containers with a GPU get; empty where that is not checked."""
    kernel: str = ""
    """Release of the running kernel."""
    gpus: Records = ()
    """The GPUs that the driver listed in this boot."""
    devices: tuple[str, ...] = ()
    """UUIDs of the GPUs that work, or of their MIG instances."""
    switches: int = 0
    """The NVSwitches that the kernel lists."""
    unjoined: int = 0
    """The GPUs that have not joined their NVLink fabric yet."""
    sound: tuple[Gpu, ...] = ()
    """The GPUs that work and had not failed before: a device plugin is to offer them to pods."""
    allocatable: tuple[Resource, ...] = ()
    """What the kubelet can give to pods, where that was asked."""

    def at_step(
        self, step: str, *, problem: str = "", found: str = "", diagnosis: Diagnosis | None = None
    ) -> Self:
        """Return this with the outcome of another step."""
        found_now = {**self.found, step: found}
        return replace(self, step=step, problem=problem, found=found_now, diagnosis=diagnosis)

    @property
    def reached(self) -> tuple[str, ...]:
        return tuple(step for step in STEPS if step == DRIVER_STEP or step in self.found)

    def passed(self, step: str) -> bool:
        """Whether this step was the last that was reached, and nothing is wrong."""
        return self.step == step and not self.problem
