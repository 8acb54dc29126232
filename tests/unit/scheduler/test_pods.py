"""The engine's views of pods."""

from typing import Any

import pytest

from libs.contracts.identities import Writer
from libs.contracts.node import DRAIN_SKIP_LABEL, DRIVER_LABEL
from libs.policy.kinds.upgrade_policy import Drain, UpgradePolicy, WaitForCompletion
from libs.rollout.views.machine import DriverPod, EvictionExemption, WorkloadPod
from services.scheduler.resources import Pod, ResourceClaim
from services.scheduler.snapshot.pod_view import (
    ClaimOf,
    driver_pod,
    is_finished,
    no_claims,
    workload_pod,
)
from tests.builders.objects import seen

NAMESPACE = "gpu-operator"
DAEMON_SET = {"kind": "DaemonSet", "name": "d", "uid": "x", "controller": True}
TIME = "2027-01-15T08:00:00Z"
REPLICA_SET = {**DAEMON_SET, "kind": "ReplicaSet"}


def pod(*, metadata: dict[str, Any] | None = None, spec: Any = None, status: Any = None) -> Pod:
    """Return a pod decoded from JSON, as from a server."""
    full_metadata = {"name": "p", "namespace": "ml", "uid": "u", **(metadata or {})}
    status = status or {"phase": "Running"}
    return seen(Pod, {"metadata": full_metadata, "spec": spec or {}, "status": status})


def workload(
    upgrade: UpgradePolicy | None = None,
    *,
    claim_of: ClaimOf = no_claims,
    absent: frozenset[Writer] = frozenset(),
    **parts: Any,
) -> WorkloadPod:
    """Return the engine's view of a pod with these parts."""
    given: Any = {"namespace": NAMESPACE, "claim_of": claim_of, "absent_agents": absent}
    return workload_pod(pod(**parts), upgrade, **given)


def with_gpus(name: str, amount: str = "1") -> Any:
    """Return a pod spec with this resource."""
    return {"containers": [{"name": "c", "resources": {"limits": {name: amount}}}]}


@pytest.mark.parametrize(
    ("spec", "gpu"),
    [
        (with_gpus("nvidia.com/gpu"), True),
        (with_gpus("nvidia.com/mig-1g.10gb"), True),
        (with_gpus("nvidia.com/gpu", "0"), False),
        (with_gpus("cpu"), False),
        ({"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "2"}}}]}, True),
        ({"initContainers": with_gpus("nvidia.com/gpu")["containers"]}, False),
    ],
)
def test_pods_with_gpu_resources_use_gpus(spec: Any, gpu: bool) -> None:
    assert workload(spec=spec).gpu is gpu


def claim(*drivers: str, admin: bool = False) -> ResourceClaim:
    """Return a claim to which devices of these drivers are allocated."""
    results = [{"driver": driver, "adminAccess": admin} for driver in drivers]
    allocation: Any = {"devices": {"results": results}}
    body = {"metadata": {"name": "c", "namespace": "ml"}, "status": {"allocation": allocation}}
    return seen(ResourceClaim, body)


CLAIMS = {
    "ml/gpu": claim("gpu.nvidia.com"),
    "ml/channel": claim("net.example", "compute-domain.nvidia.com"),
    "ml/nic": claim("net.example"),
    "ml/admin": claim("gpu.nvidia.com", admin=True),
    "ml/pending": ResourceClaim(metadata=claim().metadata),
}


def claiming(*names: str) -> dict[str, Any]:
    """Return a pod spec that names these claims."""
    return {
        "containers": [{"name": "c"}],
        "resourceClaims": [{"name": f"of-{name}", "resourceClaimName": name} for name in names],
    }


@pytest.mark.parametrize(
    ("spec", "gpu", "unknown"),
    [
        (claiming("gpu"), True, False),
        (claiming("channel"), True, False),
        (claiming("nic", "gpu"), True, False),
        (claiming("nic"), False, False),
        (claiming("admin"), False, False),
        (claiming("pending"), False, True),
        (claiming("absent"), False, True),
        (claiming("nic", "absent"), False, True),
        (claiming("absent", "gpu"), True, False),
        ({**claiming("absent"), **with_gpus("nvidia.com/gpu")}, True, False),
        ({**claiming(), **with_gpus("cpu")}, False, False),
    ],
)
def test_pods_with_gpus_by_a_resource_claim_use_gpus(spec: Any, gpu: bool, unknown: bool) -> None:
    view = workload(spec=spec, claim_of=CLAIMS.get)
    assert (view.gpu, view.claims_unknown) == (gpu, unknown)


@pytest.mark.parametrize(
    ("statuses", "gpu", "unknown"),
    [
        ([{"name": "gpus", "resourceClaimName": "gpu"}], True, False),
        ([{"name": "gpus", "resourceClaimName": None}], False, False),
        ([{"name": "other", "resourceClaimName": "gpu"}], False, True),
        ([], False, True),
    ],
)
def test_claims_made_from_templates_are_named_in_the_status(
    statuses: Any, gpu: bool, unknown: bool
) -> None:
    spec = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "one-gpu"}]}
    status = {"phase": "Running", "resourceClaimStatuses": statuses}
    view = workload(spec=spec, status=status, claim_of=CLAIMS.get)
    assert (view.gpu, view.claims_unknown) == (gpu, unknown)


OWNED = {"ownerReferences": [DAEMON_SET]}


def ours(app: str) -> dict[str, Any]:
    """Return the metadata of a pod of a DaemonSet in the namespace of Sluice."""
    return {"namespace": NAMESPACE, **OWNED, "labels": {"app": app}}


@pytest.mark.parametrize(
    ("metadata", "operand", "exemption"),
    [
        ({}, "", EvictionExemption.NONE),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, "", EvictionExemption.MIRROR),
        (OWNED, "", EvictionExemption.DAEMON_SET),
        (OWNED, "dcgm", EvictionExemption.OPERAND),
        (OWNED, "operator-validator", EvictionExemption.DAEMON_SET),
        (OWNED, "driver", EvictionExemption.DAEMON_SET),
        (OWNED, "operands", EvictionExemption.DAEMON_SET),
        ({"namespace": NAMESPACE}, "", EvictionExemption.SLUICE),
        (ours("nvidia-dcgm"), "dcgm", EvictionExemption.OPERAND),
        (ours("nvidia-dcgm-exporter"), "dcgm-exporter", EvictionExemption.SLUICE),
        ({"labels": {DRAIN_SKIP_LABEL: "true"}}, "", EvictionExemption.DRAIN_SKIP),
        ({"labels": {DRAIN_SKIP_LABEL: "false"}}, "", EvictionExemption.NONE),
    ],
)
def test_owner_label_and_namespace_exempt_a_pod_from_eviction(
    metadata: dict[str, Any], operand: str, exemption: EvictionExemption
) -> None:
    spec = selecting(operand) if operand else {}
    assert workload(metadata=metadata, spec=spec).exemption is exemption


def selecting(operand: str) -> dict[str, Any]:
    """Return a pod spec for the nodes on which this operand is deployed."""
    return {"nodeSelector": {f"nvidia.com/gpu.deploy.{operand}": "true"}}


@pytest.mark.parametrize("namespace", [NAMESPACE, "other"])
@pytest.mark.parametrize(
    ("agent", "operand"), [(Writer.PLUGIN, "device-plugin"), (Writer.TELEMETRY, "dcgm-exporter")]
)
def test_where_an_agent_of_ours_is_off_what_selects_by_its_label_is_awaited(
    namespace: str, agent: Writer, operand: str
) -> None:
    def exemption(*absent: Writer, **labels: str) -> EvictionExemption:
        metadata = {"namespace": namespace, **OWNED, "labels": labels}
        agents = frozenset(absent)
        return workload(metadata=metadata, spec=selecting(operand), absent=agents).exemption

    app = "nvidia-device-plugin-daemonset"
    assert exemption(agent, app=app) is EvictionExemption.OPERAND
    is_ours = namespace == NAMESPACE
    other = EvictionExemption.SLUICE if is_ours else EvictionExemption.DAEMON_SET
    assert exemption(app=app) is other
    managed = {"app": app, "app.kubernetes.io/managed-by": "sluice"}
    own = EvictionExemption.SLUICE if is_ours else EvictionExemption.OPERAND
    assert exemption(agent, **managed) is own


def test_selectors_of_the_policy_say_which_pods_are_jobs_and_which_are_drained() -> None:
    upgrade = UpgradePolicy(
        wait_for_completion=WaitForCompletion(pod_selector="kind=job"),
        drain=Drain(enable=True, pod_selector="team=ml"),
    )
    is_job = {"labels": {"kind": "job"}}
    job = workload(upgrade, metadata=is_job)
    assert (job.job, job.drained) == (True, False)
    other = workload(upgrade, metadata={"labels": {"team": "ml"}})
    assert (other.job, other.drained) == (False, True)
    terminating = workload(upgrade, metadata={**is_job, "deletionTimestamp": TIME})
    assert (terminating.job, terminating.deleting) == (False, True)
    none = workload(UpgradePolicy(), metadata=is_job)
    assert (none.job, none.drained) == (False, False)


def test_a_pod_without_an_owner_is_bare_and_an_empty_dir_is_noted() -> None:
    owned = workload(metadata={"ownerReferences": [REPLICA_SET]})
    assert (owned.bare, owned.empty_dir) == (False, False)
    spec = {"volumes": [{"name": "v", "emptyDir": {}}]}
    bare = workload(spec=spec)
    assert (bare.bare, bare.empty_dir) == (True, True)


@pytest.mark.parametrize(
    ("phase", "finished"), [("Succeeded", True), ("Failed", True), ("Running", False), ("", False)]
)
def test_a_pod_is_finished_once_it_has_succeeded_or_failed(phase: str, finished: bool) -> None:
    assert is_finished(pod(status={"phase": phase})) is finished


def test_the_view_of_a_driver_pod_has_its_label_its_digest_and_its_run() -> None:
    metadata = {
        "labels": {DRIVER_LABEL: "l"},
        "annotations": {"sluice.dev/install-digest": "d"},
        "deletionTimestamp": TIME,
    }
    running = {
        "name": "nvidia-driver-ctr",
        "restartCount": 2,
        "state": {"running": {"startedAt": TIME}},
    }
    conditions = [{"type": "Ready", "status": "True"}]
    found = driver_pod(
        pod(metadata=metadata, status={"conditions": conditions, "containerStatuses": [running]})
    )
    assert (found.label, found.install_digest) == ("l", "d")
    assert (found.deleting, found.ready) == (True, True)
    assert (found.started, found.restarts, found.trouble) == (1_800_000_000.0, 2, "")


def test_a_driver_pod_that_this_leader_deleted_is_terminating() -> None:
    alive = pod(metadata={"uid": "p1"})
    assert driver_pod(alive, deleted_uid="p1").deleting
    assert not driver_pod(alive, deleted_uid="p0").deleting


def test_a_container_that_cannot_start_is_the_trouble_of_its_driver_pod() -> None:
    waiting = {
        "name": "image-pull",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}},
    }
    found = driver_pod(pod(status={"initContainerStatuses": [waiting]}))
    assert (found.started, found.ready, found.trouble) == (None, False, "ImagePullBackOff: no")
    creating = {"name": "x", "state": {"waiting": {"reason": "ContainerCreating"}}}
    assert driver_pod(pod(status={"containerStatuses": [creating]})).trouble == ""


def test_how_a_driver_ended_and_the_end_of_its_log() -> None:
    log = "Installing\n\n  insmod nvidia.ko \x1b[31m\ncould not insert\nunloading\n"
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": log}}
    found = _driver_with(state={"running": {}}, lastState=ended, restartCount=1)
    assert found.trouble == ""
    assert found.last_exit == (
        "exited with code 137 (OOMKilled), and its log ends:"
        " insmod nvidia.ko ?[31m / could not insert / unloading;"
        " all of it: `kubectl logs -n ml p -c nvidia-driver-ctr --previous`"
    )
    assert found.latest_exit == "exited with code 137 (OOMKilled)"
    long = {"terminated": {"exitCode": 1, "reason": "Error", "message": "y" * 900 + "x" * 300}}
    found = _driver_with(state=long)
    assert (found.last_exit, found.latest_exit) == ("", "exited with code 1")
    text = "container nvidia-driver-ctr exited with code 1, and its log ends: "
    logs = "kubectl logs -n ml p -c nvidia-driver-ctr"
    assert found.trouble == f"{text}…{'x' * 299}; all of it: `{logs}`"
    assert _driver_with(lastState={"terminated": {}}).last_exit == (
        f"exited with code 0; its log: `{logs} --previous`"
    )


def test_another_container_of_a_driver_pod_that_fails_says_why() -> None:
    ended = {"terminated": {"exitCode": 1, "message": "no sources of this kernel\n"}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    failing = {"name": "nvidia-fs-ctr", "state": waiting, "lastState": ended}
    found = driver_pod(pod(status={"containerStatuses": [failing]}))
    assert found.trouble == (
        "CrashLoopBackOff; container nvidia-fs-ctr exited with code 1,"
        " and its log ends: no sources of this kernel;"
        " all of it: `kubectl logs -n ml p -c nvidia-fs-ctr --previous`"
    )
    of_driver = _driver_with(state=waiting, lastState=ended)
    assert of_driver.trouble == "CrashLoopBackOff"
    assert of_driver.problem() == (
        "CrashLoopBackOff; the driver container exited with code 1,"
        " and its log ends: no sources of this kernel;"
        " all of it: `kubectl logs -n ml p -c nvidia-driver-ctr --previous`"
    )


def _driver_with(**status: Any) -> DriverPod:
    container = {"name": "nvidia-driver-ctr", **status}
    return driver_pod(pod(status={"containerStatuses": [container]}))


JOB = {**REPLICA_SET, "kind": "Job", "name": "train"}
INDEXED = {"batch.kubernetes.io/job-completion-index": "3"}


@pytest.mark.parametrize(
    ("owners", "labels", "gang"),
    [
        ([], {}, ""),
        ([JOB], {}, ""),
        ([JOB], INDEXED, "ml/train"),
        ([JOB], {**INDEXED, "jobset.sigs.k8s.io/jobset-name": "ring"}, "ml/ring"),
        ([], {"training.kubeflow.org/job-name": "torch"}, "ml/torch"),
    ],
)
def test_pods_that_compute_together_are_a_gang(
    owners: list[Any], labels: dict[str, str], gang: str
) -> None:
    assert workload(metadata={"ownerReferences": owners, "labels": labels}).gang == gang


def test_a_pod_began_at_its_start_or_else_at_its_creation() -> None:
    created = {"creationTimestamp": "2027-01-15T07:59:00Z"}
    started = {"phase": "Running", "startTime": TIME}
    running = workload(metadata=created, status=started)
    assert running.started == 1_800_000_000.0
    pending = workload(metadata=created, status={})
    assert pending.started == 1_799_999_940.0
    assert workload().started is None
