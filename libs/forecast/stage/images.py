"""Driver images: those on a machine, and the pods that bring them before the node is drained."""

from libs.forecast.stage.driver_pods import CONTAINER
from libs.forecast.stage.objects import StageMachine
from libs.forecast.stage.state import StageState
from libs.rollout.views.machine import ImagePull

UNAVAILABLE = "ImagePullBackOff: the image of the driver does not exist"


def bring_image(state: StageState, machine: StageMachine, label: str) -> None:
    """Begin to bring the image to the machine, as the driver service does on a preflight check."""
    if machine.wanted_image != label:
        machine.wanted_image, machine.image_trouble = label, ""
        seconds = state.latencies.daemon_set + state.latencies.kubelet
        state.call_after(seconds, pull_image, machine.name, label)


def pull_image(state: StageState, name: str, label: str) -> None:
    """Pull, as the kubelet does; it tries again after a failure."""
    machine = state.machines.get(name)
    if machine is None or machine.wanted_image != label:
        return
    pull = 0.0 if label in machine.images else state.world.pull(name, label, CONTAINER).seconds
    if not (machine.up and machine.kubelet_connected):
        state.call_after(state.latencies.restart_backoff, pull_image, name, label)
    elif pull is None:
        machine.image_trouble = UNAVAILABLE
        state.touch(name)
        state.call_after(state.latencies.restart_backoff_max, pull_image, name, label)
    else:
        state.call_after(pull, end_pull, name, label, machine.boot)


def end_pull(state: StageState, name: str, label: str, boot: int) -> None:
    """End a pull; a reboot begins it anew."""
    machine = state.machines.get(name)
    if machine is None or machine.wanted_image != label:
        return
    if state.machine(name, boot) is None or not machine.kubelet_connected:
        pull_image(state, name, label)
        return
    machine.images |= {label}
    machine.image_trouble = ""
    state.touch(name)


def image_pull(machine: StageMachine) -> ImagePull | None:
    """Return what the pod that brings an image shows; None: there is no such pod."""
    label = machine.wanted_image
    if not label:
        return None
    present = label in machine.images
    return ImagePull(label=label, present=present, trouble="" if present else machine.image_trouble)
