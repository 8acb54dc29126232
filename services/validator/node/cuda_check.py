"""The step `cuda`: each GPU that is to be used computes, and computes right. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from libs.contracts.diagnoses import Diagnosis
from libs.contracts.facts import Gpu
from libs.contracts.words import first_sentences
from libs.host.cuda.port import Computation, CudaProblem
from services.validator.node.probe import CUDA_STEP, DESCRIBED, Probe

_DIAGNOSES: Final = {
    CudaProblem.NOT_READY: Diagnosis.FABRIC_MANAGER,
    CudaProblem.VERSION_MISMATCH: Diagnosis.VERSION_MISMATCH,
    CudaProblem.NO_UVM_DEVICE: Diagnosis.NO_DEVICE_FILES,
}


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
    diagnosis = _diagnosis(probe, failed)
    problem = first_sentences((f"{each.uuid}: {each.describe()}" for each in failed), DESCRIBED)
    if diagnosis is Diagnosis.FABRIC_MANAGER:
        problem += f"; NVSwitches: {probe.switches}; GPUs outside of the fabric: {probe.unjoined}"
    return probe.at_step(CUDA_STEP, problem=problem, found=found, diagnosis=diagnosis)


def _diagnosis(probe: Probe, failed: Sequence[Computation]) -> Diagnosis | None:
    """Return the first that has a name. Without NVSwitches, a system waits for something else."""
    found = (_DIAGNOSES.get(each.problem) for each in failed if each.problem is not None)
    named = [each for each in found if each is not None]
    if not (probe.switches or probe.unjoined):
        named = [each for each in named if each is not Diagnosis.FABRIC_MANAGER]
    return named[0] if named else None
