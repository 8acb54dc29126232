"""The validator: its chain of steps, and the resulting evidence.

Evidence names the driver run at the beginning of the chain, provided that it lasts to the end.
`on_machine_changed` may be called at any time and any number of times.
"""

from msgspec.structs import replace

from libs.contracts.commands import Validate
from libs.contracts.reports import Evidence, Outcome, ValidationStep
from libs.forecast.stage import agents
from libs.forecast.stage.gpu_health import hinders_proof
from libs.forecast.stage.objects import DriverPodPhase, StageAgent, StageDriverPod, StageMachine
from libs.forecast.stage.state import StageState
from libs.forecast.world import VALIDATION_STEPS

RUNTIME = "runtime-1"
GPUS_STEP = "gpus"
"""The step after the first: no GPU failed that had not failed before."""
STEPS = (VALIDATION_STEPS[0], GPUS_STEP, *VALIDATION_STEPS[1:])
_PLUGIN_STEP = "plugin"
"""The step that cannot pass while the plugin is quiesced."""
_NEXT_STEPS = {name: VALIDATION_STEPS.index(name) for name in VALIDATION_STEPS} | {GPUS_STEP: 1}
"""The step with which a chain goes on that was found in a phase."""
_Failure = tuple[str, str]
"""The failed step and why it failed; empty: the validation passed."""
_PASSED: _Failure = ("", "")


def on_machine_changed(state: StageState, machine: StageMachine) -> None:
    """Begin the chain, or continue with a step that had to wait."""
    agent = machine.agents["validator"]
    if not machine.up or not agents.is_live(agent) or not agent.running:
        if not agent.running:
            agent.holds_devices = False
        return
    if not isinstance(agent.body, Validate):
        return
    if not agent.phase:
        _begin(state, machine, agent, agent.body)
    elif agent.phase == "waits" and _plugin_holds(machine):
        _run_step(state, machine, agent, VALIDATION_STEPS.index(_PLUGIN_STEP))


def driver_instance(machine: StageMachine, label: str) -> str:
    """Return the identity of the working driver; empty: none has this label."""
    loaded = machine.loaded
    if loaded is None:
        return ""
    pod = _running(machine)
    if pod is not None:
        same = pod.label == label and pod.status.ready
        return f"{pod.uid}/{pod.status.started}" if same else ""
    return "" if machine.drivers else f"module/{loaded.driver.loaded_at}"


def _running(machine: StageMachine) -> StageDriverPod | None:
    for pod in machine.drivers.values():
        if pod.on_machine and pod.phase is DriverPodPhase.RUNNING:
            return pod
    return None


def _plugin_holds(machine: StageMachine) -> bool:
    plugin = machine.agents.get("plugin")
    return plugin is None or plugin.holds_devices


def _begin(state: StageState, machine: StageMachine, agent: StageAgent, body: Validate) -> None:
    agent.instance = driver_instance(machine, body.label)
    agent.attempt = machine.attempt(f"validation {body.label}")
    agents.progress(state, machine, agent, "begun")
    if not agent.instance:
        _end(state, machine, agent, body, _not_passed(VALIDATION_STEPS[0]))
        return
    agent.holds_devices = True
    found, agent.found_phase = agent.found_phase, ""
    _enter_step(state, machine, agent, _NEXT_STEPS.get(found, 0))


def _enter_step(state: StageState, machine: StageMachine, agent: StageAgent, index: int) -> None:
    """Run this step, or wait until it can run."""
    if VALIDATION_STEPS[index] == _PLUGIN_STEP and not _plugin_holds(machine):
        agent.phase = "waits"
    else:
        _run_step(state, machine, agent, index)


def _run_step(state: StageState, machine: StageMachine, agent: StageAgent, index: int) -> None:
    """Run this step; the next one follows when it has passed."""
    body = agent.body
    if agent.current_op is None or not isinstance(body, Validate):
        return
    agent.phase = VALIDATION_STEPS[index]
    end = state.world.validation(machine.name, body.label, agent.attempt)
    if end.after is None:
        return
    steps = VALIDATION_STEPS.index(end.failed) + 1 if end.failed else len(VALIDATION_STEPS)
    agents.call_in_op(state, end.after / steps, validation_step_finished, machine, agent, index)


def validation_step_finished(
    state: StageState, machine: StageMachine, agent: StageAgent, index: int
) -> None:
    body = agent.body
    if not isinstance(body, Validate):
        return
    failed = state.world.validation(machine.name, body.label, agent.attempt).failed
    node = state.nodes.get(machine.name)
    hindered = (
        "" if index or node is None else hinders_proof(machine, node.view.gpus, body.failed_gpus)
    )
    if hindered and failed != VALIDATION_STEPS[index]:
        _end(state, machine, agent, body, (GPUS_STEP, hindered))
    elif failed == VALIDATION_STEPS[index]:
        _end(state, machine, agent, body, _not_passed(failed))
    elif index + 1 == len(VALIDATION_STEPS):
        is_same_driver = driver_instance(machine, body.label) == agent.instance
        failure = _PASSED if is_same_driver else _not_passed(VALIDATION_STEPS[0])
        _end(state, machine, agent, body, failure)
    else:
        agents.progress(state, machine, agent, VALIDATION_STEPS[index + 1])
        _enter_step(state, machine, agent, index + 1)


def _not_passed(step: str) -> _Failure:
    return step, f"the step {step} did not pass"


def _end(
    state: StageState, machine: StageMachine, agent: StageAgent, body: Validate, failure: _Failure
) -> None:
    agent.holds_devices = False
    evidence = _evidence(state, machine, agent, body, failure)
    agent.pending_reports = replace(agent.pending_reports, evidence=evidence)
    outcome = Outcome.FAILED if failure[0] else Outcome.DONE
    agents.finish(state, machine, agent, outcome, failure)
    state.machine_changed(machine)


def _evidence(
    state: StageState, machine: StageMachine, agent: StageAgent, body: Validate, failure: _Failure
) -> Evidence:
    failed, message = failure
    command, loaded, pod = agent.current_op, machine.loaded, _running(machine)
    if command is None:
        raise RuntimeError(f"the validator of {machine.name} has no op in progress to prove")
    started = loaded.driver.loaded_at if loaded is not None else 0.0
    if pod is not None:
        started = pod.status.started or 0.0
    reached = STEPS[: STEPS.index(failed) + 1] if failed else STEPS
    return Evidence(
        epoch=command.epoch,
        token=command.token,
        op=command.op,
        passed=not failed,
        label=body.label,
        node_uid=agent.node_uid,
        boot_id=machine.boot_id,
        kernel=machine.kernel,
        driver_pod_uid=pod.uid if pod is not None else "",
        driver_started=started,
        driver_version=loaded.driver.version if loaded is not None else "",
        driver_digest=loaded.install_digest if loaded is not None else "",
        runtime_digest=RUNTIME,
        mig_digest=machine.layout,
        steps=tuple(
            ValidationStep(
                name=name, passed=name != failed, message=message if name == failed else ""
            )
            for name in reached
        ),
        at=state.now,
    )
