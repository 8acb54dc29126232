"""The step `cuda`: each GPU that is to be used computes, and computes right. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from libs.contracts.facts import Gpu
from libs.host.cuda.port import Computation, CudaProblem
from services.validator.node.probe import CUDA_STEP, Probe

_DESCRIBED: Final = 3
"""The number of failures that a text describes; it counts the others."""


def devices(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """Return the UUIDs to compute on: a divided GPU computes in its instances alone."""
    return tuple(
        uuid
        for gpu in gpus
        for uuid in ([mig.uuid for mig in gpu.migs] if gpu.mig_mode else [gpu.uuid])
    )


def judge_cuda(probe: Probe, computations: Sequence[Computation]) -> Probe:
    """Add what the computations prove.

    A GPU that another process has for itself is no failure: that process computes on it.
    """
    in_use = [each for each in computations if each.problem is CudaProblem.IN_USE]
    failed = [each for each in computations if each.problem and each not in in_use]
    total = len(computations)
    found = f"{total - len(in_use) - len(failed)} of {total} GPUs or MIG devices compute right"
    if in_use:
        found += f"; in use by other processes, and not tried: {len(in_use)}"
    return probe.at_step(CUDA_STEP, problem=_text(failed), found=found)


def _text(failed: Sequence[Computation]) -> str:
    texts = [f"{each.uuid}: {each.describe()}" for each in failed[:_DESCRIBED]]
    more = len(failed) - _DESCRIBED
    return "; ".join([*texts, *([f"{more} more"] if more > 0 else [])])
