"""Which operation brings a node to its wanted driver (docs/states.md#variations)."""

from libs.contracts.node import NodeRecord, Operation, WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.at_rest.running_driver import driver_pod_of, passed_evidence
from libs.rollout.at_rest.targets import is_joining
from libs.rollout.decision import Wait
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build, PoolView
from libs.rollout.wait_reasons import wait

EVICTING_OPERATIONS = frozenset(
    {
        Operation.UPGRADE,
        Operation.SAME_LABEL,
        Operation.TAKE_OVER,
        Operation.INSTALL,
        Operation.REMOVE,
    }
)
"""Operations in which GPU pods are evicted."""

_PRE_INSTALLED, _HOST = InstallMethod.PRE_INSTALLED, InstallMethod.HOST
_UPGRADE = Operation.UPGRADE


def choose_operation(
    node: NodeView, record: NodeRecord | None, pool: PoolView, build: Build, now: Instant
) -> Operation | Wait:
    """Return the lightest sound operation; a wait while the machine's contents are unknown."""
    if pool.method is _PRE_INSTALLED:
        return _pre_installed(node, build, now)
    if is_joining(node, record):
        return _first_operation(node, pool, now)
    if pool.method is _HOST:
        return Operation.INSTALL
    if is_restart_only(node, record, build):
        return Operation.RESTART
    if build.label in (node.driver_label, _proven_label(record)):
        return Operation.SAME_LABEL
    return _UPGRADE


def _proven_label(record: NodeRecord | None) -> str:
    """Return the label it was proven to run; the label may have been removed since."""
    return record.evidence.label if record is not None and record.evidence is not None else ""


def _pre_installed(node: NodeView, build: Build, now: Instant) -> Operation | Wait:
    loaded = node.loaded
    ours = bool(node.driver_pods) or (loaded is not None and not loaded.preinstalled)
    if ours and node.driver_label not in ("", build.label):
        return Operation.REMOVE
    if loaded is not None:
        return Operation.VALIDATE
    if not node.modules_reported:
        return machine_unknown_wait(now)
    return wait(
        WaitCode.TARGET_MISSING,
        "the policy expects a pre-installed driver, but none is loaded",
        now,
        who="the administrator of the machine, or the author of the policy",
    )


def _first_operation(node: NodeView, pool: PoolView, now: Instant) -> Operation | Wait:
    """Only a machine that is known to be empty is brought up without evictions."""
    occupied = is_occupied(node)
    if occupied is None:
        return machine_unknown_wait(now)
    if not occupied:
        return Operation.BRING_UP
    return Operation.INSTALL if pool.method is _HOST else Operation.TAKE_OVER


def is_occupied(node: NodeView) -> bool | None:
    """Whether modules are loaded or pods have GPUs; None: not reported."""
    if node.loaded is not None:
        return True
    if node.pods is not None and any(pod.gpu for pod in node.pods):
        return True
    if node.usage is not None and any(use.gpus for use in node.usage.pods):
        return True
    known = node.modules_reported and (node.pods is not None or node.usage is not None)
    return False if known else None


def machine_unknown_wait(now: Instant) -> Wait:
    detail = "the driver agent has not reported loaded modules and GPU pods since the last boot"
    return wait(WaitCode.AGENT_SILENT, detail, now)


def is_restart_only(node: NodeView, record: NodeRecord | None, build: Build) -> bool:
    """Whether the modules may stay loaded: the same installation, in the proven version.

    docs/states.md#v-restart
    """
    if record is None or record.asked or node.safe_load or not build.install_digest:
        return False
    evidence, pod, loaded = passed_evidence(node, record), driver_pod_of(node), node.loaded
    return (
        evidence is not None
        and evidence.boot_id == node.boot_id
        and pod is not None
        and pod.install_digest == build.install_digest
        and loaded is not None
        and loaded.version == evidence.driver_version
        and build.label != node.driver_label
    )
