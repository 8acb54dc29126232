"""What one reading of a GPU says about its health, rule by rule.

A value that is absent, or cannot be true, says nothing: then nothing changes.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.gpus import REMEDIES, FabricState, GpuProblem, RecoveryAction
from libs.contracts.health import HealthRule, HealthState
from libs.contracts.telemetry import GpuSample
from libs.health.readable import count, flag
from libs.health.xids import REBOOT, RESET


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep read of one GPU."""

    gpu: Gpu | None = None
    """None if NVML could not be used."""
    sample: GpuSample | None = None
    problem: GpuProblem | None = None
    """Why NVML could not be used; None also while the agent has released the GPUs."""
    links_seen: frozenset[int] = frozenset()
    """The NVLinks that were active at some time since the boot."""
    is_missing: bool = False
    """NVML lists the GPUs, and this one is not among them any more."""

    @property
    def is_usable(self) -> bool | None:
        """Whether the GPU answered; None if the sweep does not say."""
        if self.is_missing:
            return False
        if self.gpu is not None:
            return self.gpu.trouble is None
        return False if self.problem in OF_ALL_GPUS else None

    @property
    def recovery(self) -> RecoveryAction | None:
        """What the driver asks for now; what it asked for before the GPU's problem is not that."""
        return self.gpu.recovery if self.gpu is not None and self.is_usable else None


OF_ALL_GPUS: Final = frozenset(
    (
        GpuProblem.NO_ANSWER,
        GpuProblem.DRIVER_HUNG,
        GpuProblem.LOST,
        GpuProblem.RESET_REQUIRED,
        GpuProblem.INSUFFICIENT_POWER,
    )
)
"""Problems of NVML as a whole that make all GPUs unusable. The others say nothing about a GPU."""


class Breach(msgspec.Struct, frozen=True):
    """A condition that holds, for people."""

    message: str
    remedy: str


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A condition under which a rule is broken, and the state that this means."""

    rule: HealthRule
    state: HealthState
    when: str
    """The condition, for people: docs/health.md has it."""
    start: float = 0.0
    """Seconds for which it must hold to count: what comes and goes by itself must not withdraw a
    GPU from pods."""
    end: float = 30.0
    """Seconds for which it must not hold to count no longer: a GPU that comes and goes would be
    offered, and fail pods, again and again."""
    check: Callable[[Reading], Breach | bool | None]
    """Returns False if it does not hold, and None if the reading does not say."""

    @property
    def key(self) -> str:
        return f"{self.rule.value}/{self.state.value}"


_ACTIONS: Final[Mapping[RecoveryAction, str]] = {
    RecoveryAction.GPU_RESET: RESET,
    RecoveryAction.NODE_REBOOT: REBOOT,
    RecoveryAction.DRAIN_AND_RESET: RESET,
    RecoveryAction.RECOVER_IMEX_DOMAIN: "restart IMEX on all nodes of the domain",
    RecoveryAction.BUS_RESET: "drain the node, then reset the GPU's PCI Express bus",
    RecoveryAction.SYSTEM_REBOOT: REBOOT,
}
_MILDER_ACTIONS: Final[Mapping[RecoveryAction, str]] = {
    RecoveryAction.DRAIN_P2P: "end the applications that use several GPUs",
    RecoveryAction.UNKNOWN_ACTION: "see the kernel log for XID 154",
}
HW_THERMAL: Final = 0x40
SW_THERMAL: Final = 0x20
POWER_BRAKE: Final = 0x80


def _action(actions: Mapping[RecoveryAction, str]) -> Callable[[Reading], Breach | bool | None]:
    def check(reading: Reading) -> Breach | bool | None:
        action = reading.recovery
        if action is None:
            return None
        remedy = actions.get(action)
        return remedy is not None and Breach(
            f"the driver asks for a recovery action: {action.value}", remedy
        )

    return check


_PROBLEMS: Final[Mapping[GpuProblem, str]] = {
    GpuProblem.NO_ANSWER: "NVML does not answer",
    GpuProblem.DRIVER_HUNG: "the driver hangs",
    GpuProblem.HUNG: "it hangs",
    GpuProblem.LOST: "it is lost",
    GpuProblem.RESET_REQUIRED: "it waits for a reset",
    GpuProblem.INSUFFICIENT_POWER: "it lacks power",
    GpuProblem.UNIDENTIFIED: "it has no UUID of its own",
    GpuProblem.FAILED: "NVML refuses a query of it",
}
"""What is wrong with a GPU that cannot be used, for people."""


def _unusable(reading: Reading) -> Breach | bool | None:
    if reading.is_usable is not False:
        return None if reading.is_usable is None else False
    problem = reading.problem
    if reading.is_missing:
        problem = GpuProblem.LOST
    elif reading.gpu is not None:
        problem = reading.gpu.trouble
    if problem is None or problem not in REMEDIES:
        return Breach("the GPU has a problem that this release does not know", REBOOT)
    what = "the driver lists it no more" if reading.is_missing else _PROBLEMS.get(problem, "")
    what = what or problem.value
    return Breach(f"the GPU cannot be used: {what}", REMEDIES[problem])


def _ecc(reading: Reading) -> Breach | bool | None:
    """Check for errors that lost data: each ended an application, and the memory may be worn."""
    errors = count(reading.sample and reading.sample.ecc_volatile_uncorrected)
    if errors is None:
        return None
    return errors > 0 and Breach(
        "uncorrectable ECC errors since the driver was loaded",
        "reset the GPU or reload its driver once no pod has it; if the errors were not contained,"
        " the driver asks for more by an XID or its recovery action",
    )


def _remap_failure(reading: Reading) -> Breach | bool | None:
    failed = flag(reading.sample and reading.sample.remap_failure)
    return failed and Breach("the remapping of a memory row failed", "replace the GPU")


def _remap_pending(reading: Reading) -> Breach | bool | None:
    sample = reading.sample
    pending = flag(sample and sample.remap_pending)
    pages = count(sample and sample.retired_pending)
    if pending is None and pages is None:
        return None
    return bool(pending or pages) and Breach(
        "memory rows or pages wait for a reset to be replaced", "reset the GPU when it is idle"
    )


def _fabric(reading: Reading) -> Breach | bool | None:
    state = reading.gpu.fabric_state if reading.gpu is not None and reading.is_usable else None
    if state is None or not state.is_known:
        return None
    return state is FabricState.FAILED and Breach(
        "the GPU could not join its NVLink fabric",
        "see the log of the fabric manager, and restart it on an idle node",
    )


def _links(reading: Reading) -> Breach | bool | None:
    """Check the NVLinks: one that was never active is not built in, and says nothing."""
    gpu = reading.gpu
    if gpu is None or not reading.is_usable or not gpu.nvlinks:
        return None
    down = sorted(reading.links_seen & set(gpu.nvlinks_down))
    return bool(down) and Breach(
        f"NVLinks went down: {', '.join(map(str, down))}",
        "see the kernel log for XID 74 or 149; drain the node, then reset the GPU and those at the"
        " other end",
    )


def _reasons(mask: int, message: str, remedy: str) -> Callable[[Reading], Breach | bool | None]:
    """Return a check of the reasons for which clocks are reduced, by NVML's bits."""

    def check(reading: Reading) -> Breach | bool | None:
        reasons = count(reading.sample and reading.sample.clock_reasons)
        if reasons is None:
            return None
        return bool(reasons & mask) and Breach(message, remedy)

    return check


CONDITIONS: Final = (
    Condition(
        rule=HealthRule.RECOVERY_ACTION,
        state=HealthState.FAILED,
        when="the driver asks for a reset, a reboot, or the recovery of the IMEX domain",
        check=_action(_ACTIONS),
    ),
    Condition(
        rule=HealthRule.RECOVERY_ACTION,
        state=HealthState.DEGRADED,
        when="the driver asks to drain traffic between GPUs, or for something unknown",
        check=_action(_MILDER_ACTIONS),
    ),
    Condition(
        rule=HealthRule.UNUSABLE,
        state=HealthState.FAILED,
        when="the GPU is hung, lost, waits for a reset, lacks power, or is not listed any more;"
        " or no GPU of the node answers",
        check=_unusable,
    ),
    Condition(
        rule=HealthRule.ECC,
        # A contained error ended one application, and the memory is not used any more. Where more
        # is wrong, the driver says so: by its recovery action, by an XID, by a failed remapping.
        state=HealthState.DEGRADED,
        when="uncorrectable ECC errors were counted since the driver was loaded",
        check=_ecc,
    ),
    Condition(
        rule=HealthRule.ROW_REMAP,
        state=HealthState.FAILED,
        when="a memory row could not be remapped",
        check=_remap_failure,
    ),
    Condition(
        rule=HealthRule.ROW_REMAP,
        state=HealthState.DEGRADED,
        when="rows or pages wait for a reset to be replaced",
        check=_remap_pending,
    ),
    Condition(
        rule=HealthRule.NVLINK,
        state=HealthState.FAILED,
        when="the GPU could not join its NVLink fabric",
        start=10.0,
        check=_fabric,
    ),
    Condition(
        rule=HealthRule.NVLINK,
        state=HealthState.DEGRADED,
        when="an NVLink is down that was active since the boot",
        start=10.0,
        check=_links,
    ),
    Condition(
        rule=HealthRule.THERMAL,
        state=HealthState.DEGRADED,
        when="clocks are reduced because of the temperature",
        start=30.0,
        end=60.0,
        check=_reasons(
            HW_THERMAL | SW_THERMAL,
            "the clocks are reduced because the GPU is too hot",
            "check fans, cooling and the temperature of the room",
        ),
    ),
    Condition(
        rule=HealthRule.POWER,
        state=HealthState.DEGRADED,
        when="clocks are reduced by the external power brake",
        start=30.0,
        end=60.0,
        check=_reasons(
            POWER_BRAKE,
            "the clocks are reduced because the power supply asks for it",
            "check the power supplies of the machine",
        ),
    ),
)
"""In the order of their importance; XIDs are between the first three and the others."""
