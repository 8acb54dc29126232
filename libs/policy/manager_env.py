"""The variables of the vendor's driver manager, whose steps Sluice performs (`manager.env`).

The manager obeys those about pods only where `autoUpgrade` is off, and so does Sluice: they say how
pods leave a node whose driver pod was deleted.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.policy.findings import Finding, quote_value, without_effect
from libs.policy.kinds.common import EnvVar
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.selectors import is_valid_selector

_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "false", "FALSE", "False"))
_DURATION: Final = re.compile(r"0|(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:h|ms|m|s))+", re.ASCII)
_PART: Final = re.compile(r"([0-9.]+)(h|ms|m|s)", re.ASCII)
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

Change = Callable[[UpgradePolicy, str], UpgradePolicy]
"""Returns the policy as a valid value of a variable changes it."""


class ManagerVariable(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one variable."""

    change: Change | None = None
    """None: the variable has no effect."""
    effect: str = ""
    because: str = ""
    """Why it has no effect."""
    takes: Callable[[str], bool] = lambda _: True
    values: str = ""
    """The values that it takes."""
    refuses_false: bool = False
    """Whether false is refused where `autoUpgrade` is off."""
    remedy: str = ""


def _is_boolean(value: str) -> bool:
    return value in _TRUE or value in _FALSE


def parse_duration(value: str) -> int | None:
    """Return whole seconds of a duration as Go writes it, rounded up; None: it is none."""
    if not _DURATION.fullmatch(value):
        return None
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(value))
    return -int(-seconds // 1)


def _force(policy: UpgradePolicy, value: str) -> UpgradePolicy:
    return _both(policy, force=value in _TRUE)


def _delete_empty_dir(policy: UpgradePolicy, value: str) -> UpgradePolicy:
    return _both(policy, delete_empty_dir=value in _TRUE)


def _timeout(policy: UpgradePolicy, value: str) -> UpgradePolicy:
    return _both(policy, timeout_seconds=parse_duration(value) or 0)


def _both(policy: UpgradePolicy, **changes: object) -> UpgradePolicy:
    """Change the eviction of GPU pods and the drain, for which the manager has one setting."""
    evicted = replace(policy.gpu_pod_deletion or policy.pod_deletion, **changes)
    return replace(
        policy,
        pod_deletion=evicted,
        gpu_pod_deletion=None,
        drain=replace(policy.drain, **changes),
    )


def _drain(policy: UpgradePolicy, value: str) -> UpgradePolicy:
    return replace(policy, drain=replace(policy.drain, enable=value in _TRUE))


def _selector(policy: UpgradePolicy, value: str) -> UpgradePolicy:
    return replace(policy, drain=replace(policy.drain, pod_selector=value))


_OUR_IDENTITY: Final = "the agent knows its node, and no operand reads it"
_OF_RDMA: Final = "rdma of the driver decides whether its pod waits for the network driver"

VARIABLES: Final[Mapping[str, ManagerVariable]] = {
    "ENABLE_GPU_POD_EVICTION": ManagerVariable(
        change=lambda policy, _: policy,
        effect="GPU pods are always evicted before a driver is unloaded",
        takes=_is_boolean,
        values="true or false",
        refuses_false=True,
        remedy="set it to true; a pod that must not be evicted needs a PodDisruptionBudget, or its"
        " node the label nvidia.com/gpu-driver-upgrade.skip=true",
    ),
    "ENABLE_AUTO_DRAIN": ManagerVariable(
        change=_drain,
        effect="drain.enable; unlike the manager, which drains only after an eviction failed",
        takes=_is_boolean,
        values="true or false",
    ),
    "DRAIN_USE_FORCE": ManagerVariable(
        change=_force,
        effect="podDeletion.force and drain.force",
        takes=_is_boolean,
        values="true or false",
    ),
    "DRAIN_DELETE_EMPTYDIR_DATA": ManagerVariable(
        change=_delete_empty_dir,
        effect="podDeletion.deleteEmptyDir and drain.deleteEmptyDir",
        takes=_is_boolean,
        values="true or false",
    ),
    "DRAIN_TIMEOUT_SECONDS": ManagerVariable(
        change=_timeout,
        effect="podDeletion.timeoutSeconds and drain.timeoutSeconds; 0s means never",
        takes=lambda value: parse_duration(value) is not None,
        values="a duration like 300s or 5m",
    ),
    "DRAIN_POD_SELECTOR_LABEL": ManagerVariable(
        change=_selector,
        effect="drain.podSelector",
        takes=is_valid_selector,
        values="a label selector",
    ),
    "NODE_LABEL_FOR_GPU_POD_EVICTION": ManagerVariable(
        because="Sluice pauses no label of others: let such pods select their nodes by"
        " nvidia.com/gpu.deploy.client, which it pauses"
    ),
    "FORCE_REINSTALL": ManagerVariable(
        because="a driver whose configuration did not change stays loaded: to load it again, label"
        " the node nvidia.com/gpu-driver-upgrade-state=upgrade-required"
    ),
    "GPU_DIRECT_RDMA_ENABLED": ManagerVariable(because=_OF_RDMA),
    "USE_HOST_MOFED": ManagerVariable(because=_OF_RDMA),
    "DRIVER_CONFIG_DIGEST": ManagerVariable(
        because="Sluice computes the digest of what an installation depends on"
    ),
    "NODE_NAME": ManagerVariable(because=_OUR_IDENTITY),
    "OPERATOR_NAMESPACE": ManagerVariable(because=_OUR_IDENTITY),
    "KUBECONFIG": ManagerVariable(because="agents have no access to the API server"),
    "NVIDIA_VISIBLE_DEVICES": ManagerVariable(
        because="no container of the driver pod gets GPUs injected"
    ),
}
"""The documented variables of the driver manager, by name."""

_UNKNOWN: Final = ManagerVariable(because="the driver manager has no such variable")
_SUPERSEDED: Final = "autoUpgrade is on: upgradePolicy says how pods leave a node"


def upgrades_by_hand(policy: UpgradePolicy, env: Iterable[EnvVar]) -> UpgradePolicy:
    """Return how nodes are upgraded: as the variables say where `autoUpgrade` is off."""
    if policy.auto_upgrade:
        return policy
    for name, value in _last_values(env).items():
        variable = VARIABLES.get(name, _UNKNOWN)
        if variable.change is not None and variable.takes(value):
            policy = variable.change(policy, value)
    return policy


def check_manager_env(
    env: Iterable[EnvVar], upgrade: UpgradePolicy, *, path: str
) -> Iterator[Finding]:
    """Yield a finding for each variable that is not obeyed."""
    for name, value in _last_values(env).items():
        variable = VARIABLES.get(name, _UNKNOWN)
        because = variable.because or (_SUPERSEDED if upgrade.auto_upgrade else "")
        if because:
            yield without_effect(f"{path}[{name}]", value, because)
        elif not variable.takes(value):
            yield Finding(
                field=f"{path}[{name}]",
                value=quote_value(value),
                problem="cannot be read",
                remedy=f"write {variable.values}",
            )
        elif variable.refuses_false and value in _FALSE:
            yield Finding(
                field=f"{path}[{name}]",
                value=quote_value(value),
                problem=f"is refused: {variable.effect}",
                remedy=variable.remedy,
            )


def _last_values(env: Iterable[EnvVar]) -> dict[str, str]:
    """Return the variables by name; of two with one name the last counts."""
    return {variable.name: variable.value for variable in env if variable.name}
