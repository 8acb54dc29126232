"""A validation: the steps are tried until they pass or all tries failed."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from msgspec.structs import replace

from libs.contracts.commands import Command, Validate
from libs.contracts.reports import Evidence, ValidationStep
from libs.health.record import GpuRecord
from libs.host import diagnosing
from libs.host.cuda.port import Cuda
from libs.host.machine import Machine
from libs.host.podresources.allocatable import AllocatableDevices
from libs.host.podresources.client import KubeletUnavailable
from libs.host.tree import Tree
from libs.policy.kinds.mig import MigStrategy
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from services.validator.node import status_files
from services.validator.node.cuda_check import judge_cuda
from services.validator.node.driver_check import probe_driver
from services.validator.node.plugin_check import check_plugin, unproven
from services.validator.node.probe import CUDA_STEP, GPUS_STEP, PLUGIN_STEP, Probe
from services.validator.node.toolkit_check import check_toolkit

NO_DIGEST: Final = "none"
"""The digest of a part that was not validated."""

TRIES: Final = 6
"""Tries until a problem counts: half a minute, in which a driver that has just started settles."""
RETRY_INTERVAL: Final = 5.0
"""Seconds between two tries: GPUs come up one after another."""
ASK_INTERVAL: Final = 1.0
"""Seconds between two questions to the kubelet."""

_log = logger()


class Run(Protocol):
    """A validation under way: an op, or one that the validator started itself."""

    @property
    def command(self) -> Command: ...

    def raise_if_superseded(self) -> None: ...

    def progress(self, phase: str, detail: str = "") -> None: ...


class Validator:
    """The validations of one machine during one boot."""

    def __init__(
        self,
        *,
        machine: Machine,
        cuda: Cuda,
        kubelet: AllocatableDevices,
        node_uid: str,
        boot_id: str,
        clock: Clock,
        driver_root: str,
        with_toolkit: bool,
        mig_strategy: MigStrategy,
    ) -> None:
        self._machine = machine
        self._cuda = cuda
        self._kubelet = kubelet
        self._node_uid = node_uid
        self._boot_id = boot_id
        self._clock = clock
        self._driver_root = driver_root
        self._with_toolkit = with_toolkit
        self._mig_strategy = mig_strategy
        self._known = tuple[GpuRecord, ...]()
        """The GPUs that the driver listed in this boot, as far as this process knows."""
        self._proven: Probe | None = None
        """What the last validation found, if it passed as far as CUDA."""

    async def validate(self, op: Run, request: Validate) -> Evidence:
        """Check driver, GPUs and CUDA until they work or all tries failed.

        While the machine does not show the requested run, no try is used up: either it soon will,
        or the scheduler replaces the request, or the time for validation ends.
        """
        await self.clear_status_files()
        seconds = defaultdict[str, float](float)
        last = self._clock.monotonic()
        attempt = 1
        while True:
            op.raise_if_superseded()
            probe = await self._probe(op, request)
            op.progress(probe.step, probe.problem)
            now = self._clock.monotonic()
            seconds[probe.step] += now - last
            last = now
            if not probe.is_undecided:
                if not probe.problem or attempt == TRIES:
                    break
                attempt += 1
            await self._clock.sleep(RETRY_INTERVAL)
        self._proven = probe if probe.passed(CUDA_STEP) else None
        if request.plugin and self._proven is not None:
            # Without NATS, the plugin offers nothing before.
            await self._write_status_files(request, probe)
            probe = await self._await_plugin(op, probe)
            seconds[PLUGIN_STEP] = self._clock.monotonic() - last
        notes = await self._machine.offload.run(lambda: diagnosing.notes(self._machine.tree))
        steps = _steps(probe, seconds)
        evidence = replace(self._evidence(op.command, request, probe), steps=steps, notes=notes)
        await self._write_status_files(request, probe)
        return evidence

    async def try_plugin(self) -> bool:
        """Ask the kubelet once whether pods can have what was proven; note it if they can."""
        if self._proven is None:
            return False
        try:
            found = await self._machine.offload.run(self._kubelet.allocatable)
        except KubeletUnavailable:
            return False
        if check_plugin(self._proven, found, self._mig_strategy).problem:
            return False
        await self._change_status_files(status_files.write_plugin)
        return True

    async def _await_plugin(self, op: Run, probe: Probe) -> Probe:
        """Ask the kubelet until pods can have the GPUs.

        The scheduler lets the device plugin offer them when this step begins, and ends it when the
        time for validation ends.
        """
        op.progress(PLUGIN_STEP)
        while True:
            op.raise_if_superseded()
            try:
                found = await self._machine.offload.run(self._kubelet.allocatable)
            except KubeletUnavailable as error:
                probe = unproven(probe, str(error))
            else:
                probe = check_plugin(probe, found, self._mig_strategy)
            if not probe.problem:
                return probe
            op.progress(PLUGIN_STEP, probe.problem)
            await self._clock.sleep(ASK_INTERVAL)

    async def clear_status_files(self) -> None:
        await self._change_status_files(status_files.clear)

    async def follow_modules(self) -> None:
        await self._change_status_files(status_files.follow_modules)

    async def _write_status_files(self, request: Validate, probe: Probe) -> None:
        failed = probe.step if probe.problem else ""
        passed = [step for step in probe.reached if step != failed]
        root = self._driver_root if request.pod_uid else ""
        await self._change_status_files(
            lambda tree: status_files.write(tree, passed, container_root=root)
        )

    async def _change_status_files(self, change: Callable[[Tree], None]) -> None:
        try:
            await self._machine.offload.run(lambda: change(self._machine.tree))
        except OSError as error:
            _log.warning(
                "pods that wait for this node's validation are not told of it: mount"
                " /run/nvidia/validations of the host, to be written",
                error=str(error),
            )

    async def _probe(self, op: Run, request: Validate) -> Probe:
        machine, known = self._machine, self._known
        probe = await machine.offload.run(
            lambda: probe_driver(machine.tree, machine.gpus, request, known=known)
        )
        self._known = probe.gpus
        if not probe.passed(GPUS_STEP):
            return probe
        if self._with_toolkit:
            probe = await machine.offload.run(lambda: check_toolkit(machine.tree, probe))
            if probe.problem:
                return probe
        op.progress(CUDA_STEP)
        computations = await machine.offload.run(lambda: self._cuda.compute(probe.devices))
        return judge_cuda(probe, computations)

    def _evidence(self, command: Command, request: Validate, probe: Probe) -> Evidence:
        return Evidence(
            epoch=command.epoch,
            token=command.token,
            op=command.op,
            passed=not probe.problem,
            label=request.label,
            node_uid=self._node_uid,
            boot_id=self._boot_id,
            kernel=probe.kernel,
            driver_pod_uid=request.pod_uid,
            driver_started=probe.started,
            driver_version=probe.version,
            driver_digest=probe.digest or NO_DIGEST,
            runtime_digest=probe.runtime_digest or NO_DIGEST,
            mig_digest=probe.mig_digest or NO_DIGEST,
            allocatable=probe.allocatable,
            at=self._clock.now(),
        )


def _steps(probe: Probe, seconds: Mapping[str, float]) -> tuple[ValidationStep, ...]:
    """Return the steps that were reached; `seconds` is how long tries ended in each step."""
    return tuple(
        ValidationStep(
            name=name,
            passed=name != probe.step or not probe.problem,
            message=(name == probe.step and probe.problem) or probe.found.get(name, ""),
            seconds=round(seconds[name], 3),
            diagnosis=probe.diagnosis if name == probe.step and probe.problem else None,
        )
        for name in probe.reached
    )
