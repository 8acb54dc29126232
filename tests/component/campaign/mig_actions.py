"""The label `nvidia.com/mig.config`, faults while it divides the GPUs, and what must come of it."""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final

from libs.contracts.events import WaitEvent
from libs.contracts.facts import Gpu, PciDevice
from libs.contracts.identities import Writer
from libs.contracts.node import MIG_CONFIG_LABEL, MIG_STATE_LABEL, MigState
from libs.contracts.waits import WaitCode
from libs.policy.mig.defaults import default_config
from libs.policy.mig.geometry import expected_geometry, found_geometry, mig_digest
from libs.policy.mig.resolution import MigProblem, resolve
from libs.testing.nvml.products import H100
from services.scheduler import resources
from tests.component.campaign.recovery import record_of
from tests.component.campaign.user_actions import ActionKind, Perform, ScheduledAction, label
from tests.component.campaign.world import CampaignWorld

UNKNOWN: Final = "all-9g.90gb"
CONFIGS: Final = (
    "all-1g.10gb", "all-balanced", "all-disabled", "all-1g.10gb", "all-balanced", UNKNOWN, None,
)  # fmt: skip
CHANGES: Final = (0.0, 40.0)
"""Changes of a machine's GPUs before a fault; all of eight GPUs in MIG mode take 64."""


async def _divide(world: CampaignWorld, action: ScheduledAction) -> bool:
    config = CONFIGS[int(action.value) % len(CONFIGS)]
    return await label(world, action.node, **{MIG_CONFIG_LABEL: config})


def _while_dividing(
    fault: Callable[[CampaignWorld, str], Coroutine[Any, Any, object]],
) -> Perform:
    """Let the fault happen right after a change, when this many were made before.

    GPUs are mostly divided after the other faults are over; this one can still happen then.
    """

    async def perform(world: CampaignWorld, action: ScheduledAction) -> bool:
        left, machine = int(action.value), world.nodes[action.node].machine

        def changed() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                machine.on_division(lambda: None)
                world.run_in_background(fault(world, action.node))

        machine.on_division(changed)
        return True

    return perform


async def _kill(world: CampaignWorld, node: str) -> None:
    world.nodes[node].kill(Writer.DRIVER)


async def _reboot(world: CampaignWorld, node: str) -> None:
    await world.nodes[node].machine.reboot()


MIG_ACTIONS: Final[Mapping[str, ActionKind]] = {
    "divide": ActionKind(_divide, 3, (0.0, float(len(CONFIGS))), on_node=True),
    "kill-driver-dividing": ActionKind(_while_dividing(_kill), 3, CHANGES, on_node=True),
    "reboot-dividing": ActionKind(_while_dividing(_reboot), 1, CHANGES, on_node=True),
}


def is_settled(node: resources.Node) -> bool:
    """Whether the state of the node's configuration is one that stays."""
    config, state = _config(node), _state(node)
    return state in (MigState.SUCCESS, MigState.FAILED) if config else not state


def is_for_another_config(wait: WaitEvent) -> bool:
    """Whether a node at rest could not be divided as its label says."""
    return wait.code == WaitCode.MIG and wait.who.endswith(MIG_CONFIG_LABEL)


def division_problems(node: resources.Node, divided: tuple[Gpu, ...]) -> Iterator[str]:
    """Report how the GPUs and the record of a node differ from what its labels say."""
    name, config, state = node.metadata.name, _config(node), _state(node)
    record = record_of(node)
    if not is_settled(node):
        yield f"{name}: the state of {config or 'no configuration'} is {state or 'missing'}"
    if config == UNKNOWN and state != MigState.FAILED:
        yield f"{name}: the state of {config}, which does not exist, is {state}"
    if state == MigState.SUCCESS:
        wanted, found = _digest(divided, config), mig_digest(found_geometry(divided))
        proven = record.evidence.mig_digest if record and record.evidence else "nothing"
        if not wanted == found == proven:
            yield f"{name}: {config} is {wanted}, but the GPUs are {found}; proven is {proven}"
    elif state == MigState.FAILED and config != UNKNOWN and not (record and record.mig_failed):
        yield f"{name}: {config} has failed, but its record names no cause"


def _config(node: resources.Node) -> str:
    return node.metadata.labels.get(MIG_CONFIG_LABEL, "")


def _state(node: resources.Node) -> str:
    return node.metadata.labels.get(MIG_STATE_LABEL, "")


def _digest(gpus: tuple[Gpu, ...], config: str) -> str:
    """Return the digest of GPUs that are divided as this configuration says."""
    pci = [
        PciDevice(address=each.pci, vendor="10de", device=H100.device, device_class="030200")
        for each in gpus
    ]
    geometry = resolve(default_config(), config, gpus, pci)
    assert not isinstance(geometry, MigProblem)
    return mig_digest(expected_geometry(geometry, gpus))
