"""`mig`: divide the GPUs as the command says, or leave them as they were.

The op may start again at any point, in this process or a later one: how far it is shows in the
GPUs, and what was before it in a file (`mig_attempt`). The driver alone decides whether a GPU is
in use; the list of processes explains its refusal.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.contracts.commands import REBOOT_REQUIRED, GpuGeometry, Mig
from libs.contracts.gpus import GpuProblem
from libs.contracts.reports import Holder
from libs.host import gate, holders, modules
from libs.host.gpus.division import Activation, DivisionRefused, GpuDivision, RefusalReason
from libs.host.gpus.port import Gpus, GpusUnavailable
from libs.host.machine import Machine
from libs.host.tree import Tree, Unreadable
from libs.runtime.clock import Clock
from services.driver.node import mig_attempt
from services.driver.node.inspection import describe_holders
from services.driver.node.mig_attempt import MigAttempt, MigFailure
from services.driver.node.mig_plan import (
    Create,
    Destroy,
    Impossible,
    SetMode,
    Step,
    found_geometry,
    plan,
)

T = TypeVar("T")

INTERVAL: Final = 5.0
"""Seconds between two tries while an op waits."""
IN_USE: Final = RefusalReason.IN_USE.value

_ROUNDS: Final = 5
"""The most plans of one op. Three are enough, unless a call of a killed agent ended late."""
_AMPERE: Final = (8, 0)
"""The compute capability of GPUs that the driver must reset in order to change their MIG mode."""
_DRM: Final = "nvidia_drm"
"""The kernel module that keeps a GPU in use, so that it cannot be reset."""


class _Failed(Exception):
    """The GPUs cannot be divided; `code` is one word for the cause."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class MigHandler:
    def __init__(self, *, machine: Machine, clock: Clock) -> None:
        self._machine = machine
        self._clock = clock

    async def __call__(self, op: Op) -> OpDone | OpFailed:
        if not isinstance(op.body, Mig):
            return OpFailed("defect", f"{op.command.kind} is no mig")
        division = _Division(op, op.body, machine=self._machine, clock=self._clock)
        try:
            result = await division.run()
        finally:
            stuck = await division.close()
        return stuck if stuck is not None and isinstance(result, OpDone) else result


class _Division:
    """One op."""

    def __init__(self, op: Op, mig: Mig, *, machine: Machine, clock: Clock) -> None:
        self._op = op
        self._mig = mig
        self._machine = machine
        self._clock = clock
        self._index = {each.uuid: each.index for each in mig.gpus}

    async def close(self) -> OpFailed | None:
        """Close the GPUs; return the problem if the kernel still holds one open."""
        try:
            await self._machine.offload.run(self._machine.gpus.close)
        except GpusUnavailable as error:
            return OpFailed(GpuProblem.DRIVER_HUNG.value, str(error))
        return None

    async def run(self) -> OpDone | OpFailed:
        attempt = await self._on_machine(mig_attempt.load)
        if attempt is None or not attempt.is_of(self._op.command.order):
            try:
                attempt = await self._begin(attempt)
            except _Failed as error:
                return OpFailed(error.code, str(error))
            if attempt is None:
                return OpDone(f"the GPUs are already divided as {self._mig.config}")
        if attempt.failure is None and not attempt.ended:
            attempt = await self._attempt(attempt)
        if attempt.failure is None:
            return OpDone(f"the GPUs are divided as {self._mig.config}")
        failure = attempt.failure
        if not attempt.ended:
            failure = await self._restore(attempt, failure)
        return OpFailed(failure.code, failure.message)

    async def _begin(self, last: MigAttempt | None) -> MigAttempt | None:
        """Store what is before the first change; return None if nothing has to change."""
        await self._wait_for_driver()
        found = await self._read(self._mig.gpus)
        is_unfinished = last is not None and not last.ended
        # After an unfinished op a failure restores what was before that one.
        if not is_unfinished and not _planned(found, self._mig.gpus):
            return None
        await self._wait_for_pods()
        before = tuple(found_geometry(each, index=self._index[each.uuid]) for each in found)
        attempt = mig_attempt.begin(last, self._op.command.order, before)
        await self._op.checkpoint("divide")
        return await self._save(attempt)

    async def _attempt(self, attempt: MigAttempt) -> MigAttempt:
        """Divide the GPUs, and store how that ended."""
        try:
            await self._wait_for_driver()
            await self._divide(self._mig.gpus, is_patient=True)
        except _Failed as error:
            failure = MigFailure(code=error.code, message=str(error))
            return await self._save(replace(attempt, failure=failure))
        return await self._save(replace(attempt, ended=True))

    async def _restore(self, attempt: MigAttempt, failure: MigFailure) -> MigFailure:
        """Divide each GPU as before, where the driver allows it; store and return how that ended.

        A change that a reboot completes is left pending, if the command says so.
        """
        if failure.code != REBOOT_REQUIRED or not self._mig.reboot:
            problems: list[str] = []
            for each in attempt.before:
                try:
                    await self._divide((each,), is_patient=False)
                except _Failed as error:
                    problems.append(str(error))
            end = "the GPUs are divided as before"
            if problems:
                end = f"not all GPUs could be divided as before: {'; '.join(problems)}"
            failure = replace(failure, message=f"{failure.message}; {end}")
        await self._save(replace(attempt, failure=failure, ended=True))
        return failure

    async def _divide(self, wanted: Sequence[GpuGeometry], *, is_patient: bool) -> None:
        """Make the changes until none is left; raise `_Failed`."""
        for _ in range(_ROUNDS):
            steps = _planned(await self._read(wanted), wanted)
            if not steps:
                return
            await self._take_all(steps, is_patient=is_patient)
        raise _Failed("not-divided", "the driver accepted each change, but they did not last")

    async def _take_all(self, steps: Sequence[Step], *, is_patient: bool) -> None:
        """Take the steps; raise `_Failed` (reboot-required) if modes are left pending."""
        pending: list[str] = []
        for step in steps:
            if pending and isinstance(step, Create):
                break
            if await self._take(step, is_patient=is_patient) is Activation.RESET_REQUIRED:
                pending.append(step.uuid)
                if not self._mig.reboot:
                    break
        if pending:
            blocked = await self._reset_is_blocked(pending[0])
            why = f", because the kernel module {_DRM} is loaded" if blocked else ""
            raise _Failed(
                REBOOT_REQUIRED,
                f"the MIG mode of {', '.join(map(self._name, pending))} changes at a reset of the"
                f" GPU, which the driver did not make{why}: a reboot of the node completes it",
            )

    async def _take(self, step: Step, *, is_patient: bool) -> Activation:
        """Take a step, as soon as no process uses the GPU; raise `_Failed` if that takes long."""
        what = f"{self._name(step.uuid)}: {step}"
        self._op.progress("dividing" if is_patient else "restoring", what)
        while True:
            await self._op.checkpoint(what)
            try:
                status = await self._with_gpus(lambda gpus: _execute(gpus, step))
            except _Failed as error:
                if error.code != IN_USE:
                    raise _Failed(error.code, f"{what}: {error}") from None
                status = Activation.IN_USE
            if status is not Activation.IN_USE:
                return status
            if isinstance(step, SetMode) and await self._reset_is_blocked(step.uuid):
                return Activation.RESET_REQUIRED
            problem = f"{what}: the GPU is in use; {await self._describe_users()}"
            if not is_patient:
                raise _Failed(IN_USE, problem)
            await self._wait(IN_USE, IN_USE, problem)

    async def _wait_for_driver(self) -> None:
        """Wait until the library can be opened."""
        while True:
            try:
                await self._machine.offload.run(self._machine.gpus.open)
            except GpusUnavailable as error:
                code = GpuProblem.NO_ANSWER if error.problem is None else error.problem
                if code is GpuProblem.DRIVER_HUNG:
                    raise _Failed(code.value, str(error)) from None
                await self._wait(code.value, "driver-start", str(error))
            else:
                return

    async def _wait_for_pods(self) -> None:
        """Wait until no pod has a GPU open, except a driver's own."""
        while users := [each for each in await self._users() if each.pod_uid]:
            problem = f"pods have GPUs open: {describe_holders(tuple(users))}"
            await self._wait(IN_USE, IN_USE, problem)

    async def _wait(self, code: str, phase: str, problem: str) -> None:
        """Wait for the next try; raise `_Failed` if it is too late for one."""
        self._op.raise_if_superseded()
        self._op.progress(phase, problem)
        if self._op.is_late:
            raise _Failed(code, problem)
        await self._clock.sleep(INTERVAL)

    async def _users(self) -> tuple[Holder, ...]:
        """Return the processes that have devices open, but for this agent's and the drivers'."""
        await self.close()
        return await self._on_machine(_users)

    async def _describe_users(self) -> str:
        await self.close()
        found = await self._on_machine(holders.holders)  # the driver's daemon may be what is left
        return f"the devices are open in {describe_holders(found)}"

    async def _reset_is_blocked(self, uuid: str) -> bool:
        """Return whether the GPU needs a reset that the kernel's state prevents."""
        gpus = await self._with_gpus(lambda gpus: gpus.describe())
        ampere = {gpu.uuid for gpu in gpus if gpu.compute_capability == _AMPERE}
        return uuid in ampere and _DRM in await self._on_machine(modules.loaded)

    async def _read(self, wanted: Sequence[GpuGeometry]) -> tuple[GpuDivision, ...]:
        return await self._with_gpus(
            lambda gpus: tuple(gpus.division(each.uuid) for each in wanted)
        )

    async def _with_gpus(self, work: Callable[[Gpus], T]) -> T:
        """Do this with the library open; raise `_Failed`."""

        def work_opened() -> T:
            self._machine.gpus.open()
            return work(self._machine.gpus)

        try:
            return await self._machine.offload.run(work_opened)
        except DivisionRefused as error:
            raise _Failed(error.reason.value, str(error)) from None
        except GpusUnavailable as error:
            code = GpuProblem.NO_ANSWER if error.problem is None else error.problem
            raise _Failed(code.value, str(error)) from None

    async def _on_machine(self, work: Callable[[Tree], T]) -> T:
        try:
            return await self._machine.offload.run(lambda: work(self._machine.tree))
        except Unreadable as error:
            raise _Failed("unreadable", f"the machine cannot be inspected: {error}") from None

    async def _save(self, attempt: MigAttempt) -> MigAttempt:
        await self._on_machine(lambda tree: mig_attempt.save(tree, attempt))
        return attempt

    def _name(self, uuid: str) -> str:
        return f"GPU {self._index.get(uuid, '?')} ({uuid})"


def _planned(found: Sequence[GpuDivision], wanted: Sequence[GpuGeometry]) -> tuple[Step, ...]:
    steps = plan(found, wanted)
    if isinstance(steps, Impossible):
        raise _Failed(steps.code, steps.message)
    return steps


def _execute(gpus: Gpus, step: Step) -> Activation:
    match step:
        case SetMode(uuid, on):
            return gpus.set_mig_mode(uuid, on=on)
        case Destroy(uuid, instance):
            gpus.destroy_instance(uuid, instance.id)
        case Create(uuid, profile, start, compute):
            gpus.create_instance(uuid, profile, start=start, compute=compute)
    return Activation.DONE


def _users(tree: Tree) -> tuple[Holder, ...]:
    drivers = {answer.pod_uid for answer in gate.list_answers(tree)}
    found = holders.holders(tree)
    return tuple(each for each in found if each.pod_uid not in drivers)
