"""What `sluice doctor` says of what it found: each check is ok, or says what to do. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from libs.contracts.numbers import parse_version
from libs.contracts.queries import StatusAnswer
from libs.contracts.rollout import Brake, RolloutSpec, RolloutStatus
from libs.ctl.failures import ExitCode, Failure, KubeFailure, NoWayToNats
from libs.ctl.text import duration, some
from libs.kube import views

DRIVER_APP: Final = "nvidia-driver-daemonset"
"""The label `app` of the DaemonSets of drivers."""
OLDEST: Final = (1, 29)
"""The oldest Kubernetes that has all that the chart installs."""
OLDEST_CONTAINERD: Final = (1, 7)
"""The oldest containerd that gives devices by CDI."""
CLOCKS_DIFFER: Final = 30.0
"""Seconds of difference from which tokens and leases begin to be refused."""
BEHIND: Final = 90.0
"""Seconds from which a source of the scheduler is out of date, rather than quiet: a quiet one is
confirmed each minute. Nothing starts on older ones."""
_SIMULATED: Final = "+simulated"
"""Ends the version of the API server that the demo simulates."""
_BUS_REMEDIES: Final = {
    ExitCode.NOT_REACHABLE: (
        "see that its pods run, and that --nats or SLUICE_NATS_URL is reachable from here"
    ),
    ExitCode.NOT_ALLOWED: (
        "name credentials with --token-file, or ask an administrator to bind you to the Role"
        " sluice-people"
    ),
}
_REMEDIES: Final[Mapping[ExitCode, str]] = {
    ExitCode.NOT_ALLOWED: "ask an administrator for the right to read it, or to run this check",
    ExitCode.NOT_FOUND: "see whether kubectl reads it: the API server, or a proxy, lacks that part",
    ExitCode.NOT_REACHABLE: "run it again once the API server answers",
}
"""What to do where the API server did not say what was asked."""


class Verdict(StrEnum):
    """What a check found, the worst last."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAULT = "fault"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at: what was found, and what to do about it."""

    about: str
    verdict: Verdict
    found: str
    remedy: str = ""


class NodeInfo(views.NodeInfo, frozen=True, kw_only=True):
    container_runtime_version: str = ""


class NodeStatus(views.NodeStatus, frozen=True, kw_only=True):
    node_info: NodeInfo = NodeInfo()


class CheckedNode(views.Node, frozen=True, kw_only=True):
    status: NodeStatus = NodeStatus()


class DeploymentSpec(views.View, frozen=True, kw_only=True):
    replicas: int = 1


class DeploymentStatus(views.View, frozen=True, kw_only=True):
    available_replicas: int = 0


class Deployment(views.Object, frozen=True, kw_only=True):
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class Upgrade(msgspec.Struct, frozen=True, kw_only=True):
    """How far the rollouts of all pools are."""

    in_flight: int = 0
    waiting: int = 0
    failed: int = 0
    skipped: int = 0
    """Nodes that people keep from the driver that their policy wants."""
    is_held: bool = False
    """A rollout with nodes that wait or are in flight is halted or braked, or none may start."""

    @property
    def is_under_way(self) -> bool:
        return self.in_flight + self.waiting > 0

    @property
    def has_trouble(self) -> bool:
        """Whether the checks of pools say what is wrong."""
        is_left = self.skipped and not self.is_under_way
        return bool(self.failed or self.is_held or is_left)

    def __str__(self) -> str:
        return f"an upgrade is under way: {self.in_flight} in flight, {self.waiting} waiting"


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """A right that a verb of the command needs."""

    verb: str
    group: str
    resource: str
    used_by: str
    subresource: str = ""
    name: str = ""
    """The only object that it is for, in Sluice's namespace: RBAC grants such a right by name."""

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {resource}"


def ok(about: str, found: str) -> Check:
    return Check(about=about, verdict=Verdict.OK, found=found)


def fault(about: str, found: str, remedy: str) -> Check:
    return Check(about=about, verdict=Verdict.FAULT, found=found, remedy=remedy)


def warning(about: str, found: str, remedy: str) -> Check:
    return Check(about=about, verdict=Verdict.WARNING, found=found, remedy=remedy)


def unknown(about: str, problem: str, remedy: str) -> Check:
    return Check(about=about, verdict=Verdict.UNKNOWN, found=problem, remedy=remedy)


def not_answered(about: str, failure: Failure, *, server: str = "") -> Check:
    """Return that the API server, of this version, did not say what was asked, and what to do."""
    if server.endswith(_SIMULATED) and failure.code == ExitCode.NOT_FOUND:
        remedy = "nothing: this API server is simulated, as in the demo, and lacks that part"
    else:
        remedy = _REMEDIES.get(failure.code, "run it again; if it lasts, see the API server's logs")
    return unknown(about, str(failure), remedy)


def bus_fault(failure: Failure) -> Check:
    """Return why NATS is not connected, without the name that the line begins with."""
    if isinstance(failure, KubeFailure):
        return not_answered("NATS", failure)  # on the way there: nothing is known of NATS
    if isinstance(failure, NoWayToNats):
        # Where nothing is installed, other checks say so.
        judge = unknown if failure.code is ExitCode.NOT_FOUND else fault
        return judge("NATS", failure.problem, failure.remedy)
    remedy = _BUS_REMEDIES.get(failure.code, "correct --nats, --ca-file or --token-file")
    return fault("NATS", str(failure).removeprefix("NATS: "), remedy)


def worst(checks: Iterable[Check]) -> Verdict:
    return max((check.verdict for check in checks), key=list(Verdict).index, default=Verdict.OK)


def server_check(address: str, version: str) -> Check:
    """Judge the API server's version, such as `v1.34.2`."""
    found = f"{version} at {address}"
    if len(number := parse_version(version)) < 2 or number >= OLDEST:
        return ok("Kubernetes", found)
    oldest = ".".join(map(str, OLDEST))
    return fault("Kubernetes", found, f"Sluice needs Kubernetes {oldest} or later: upgrade it")


def definitions_check(served: Mapping[str, bool]) -> Check:
    """Judge which of our kinds the API server serves."""
    about = "definitions"
    missing = [kind for kind, is_served in served.items() if not is_served]
    if not missing:
        return ok(about, f"all {len(served)} kinds are served")
    remedy = "install the chart, or apply the files in its folder crds"
    return fault(about, f"the cluster does not know {', '.join(missing)}", remedy)


def services_checks(deployments: Sequence[Deployment], namespace: str) -> list[Check]:
    """Judge the Deployments of our services."""
    if not deployments:
        remedy = f"install the chart, or name its namespace with --namespace (not {namespace})"
        return [fault("services", f"there are none in namespace {namespace}", remedy)]
    checks: list[Check] = []
    for each in deployments:
        ready, wanted = each.status.available_replicas, each.spec.replicas
        name, found = each.metadata.name, f"{ready} of {wanted} are available"
        look = f"kubectl --namespace {namespace} describe deployment {name}"
        if not wanted:
            checks.append(fault(name, "it is scaled to 0", f"scale it up again: {look}"))
        elif not ready:
            checks.append(fault(name, found, f"see {look}"))
        elif ready < wanted:
            checks.append(warning(name, found, f"see {look}"))
        else:
            checks.append(ok(name, found))
    return checks


def operands_check(
    daemon_sets: Sequence[views.DaemonSet], namespace: str, upgrade: Upgrade
) -> Check:
    """Judge the pods of agents and drivers. Drivers of nodes in flight are not ready meanwhile."""
    late = [each for each in daemon_sets if _missing(each)]
    about = "agents and drivers"
    if not daemon_sets:
        return warning(about, "there are none", "create a ClusterPolicy: see docs/install.md")
    drivers = [each for each in late if each.metadata.labels.get("app") == DRIVER_APP]
    expected = upgrade.in_flight + upgrade.failed
    if late == drivers and sum(map(_missing, drivers)) <= expected:
        late = []
    if late:
        names = (f"{each.metadata.name} {_ready(each)}" for each in late)
        remedy = f"see kubectl --namespace {namespace} get pods"
        return warning(about, f"not all are ready: {some(names)}", remedy)
    found = f"the pods of {len(daemon_sets)} DaemonSets are ready"
    failed = " or failed" if upgrade.failed else ""
    return ok(about, f"{found}, but for drivers of nodes in flight{failed}" if drivers else found)


def _missing(daemon_set: views.DaemonSet) -> int:
    status = daemon_set.status
    return max(0, status.desired_number_scheduled - status.number_ready)


def _ready(daemon_set: views.DaemonSet) -> str:
    status = daemon_set.status
    return f"{status.number_ready}/{status.desired_number_scheduled}"


def nodes_checks(nodes: Sequence[CheckedNode]) -> list[Check]:
    """Judge the nodes that have GPUs."""
    about = "nodes with GPUs"
    if not nodes:
        remedy = "the label nvidia.com/gpu.present is written once discovery's agents run"
        return [warning(about, "there are none", remedy)]
    return [
        _nodes_check(
            about,
            ("all are Ready", "not Ready"),
            [each.metadata.name for each in nodes if _condition(each, "Ready") != "True"],
            "see kubectl describe node",
        ),
        _nodes_check(
            "GPUs",
            ("none has failed", "failed on"),
            [each.metadata.name for each in nodes if _condition(each, "GPUHealthy") == "False"],
            "see sluice gpus",
        ),
        _nodes_check(
            "container runtimes",
            ("all give devices by CDI", "without CDI on"),
            [each.metadata.name for each in nodes if not _has_cdi(each)],
            f"containerd before {'.'.join(map(str, OLDEST_CONTAINERD))} cannot give devices to"
            " pods: upgrade it",
        ),
    ]


def _nodes_check(about: str, words: tuple[str, str], names: Sequence[str], remedy: str) -> Check:
    good, bad = words
    return warning(about, f"{bad}: {some(names)}", remedy) if names else ok(about, good)


def _condition(node: CheckedNode, kind: str) -> str:
    return next((each.status for each in node.status.conditions if each.type == kind), "")


def _has_cdi(node: CheckedNode) -> bool:
    runtime, _, text = node.status.node_info.container_runtime_version.partition("://")
    number = parse_version(text)
    return runtime != "containerd" or len(number) < 2 or number >= OLDEST_CONTAINERD


def upgrade_of(rollouts: Iterable[tuple[RolloutSpec, RolloutStatus]]) -> Upgrade:
    """Return how far the rollouts of all pools are, together."""
    listed = [(spec, status, _waiting(status)) for spec, status in rollouts]
    return Upgrade(
        in_flight=sum(len(status.in_flight) for _, status, _ in listed),
        waiting=sum(waiting for _, _, waiting in listed),
        failed=sum(status.counts.failed for _, status, _ in listed),
        skipped=sum(status.counts.skipped for _, status, _ in listed),
        is_held=any(
            (waiting or status.in_flight) and (status.because or spec.brake is not Brake.NONE)
            for spec, status, waiting in listed
        ),
    )


def _waiting(status: RolloutStatus) -> int:
    """Return how many nodes wait for their start. `waiting` is as old as the last write."""
    counts = status.counts
    settled = counts.done + counts.failed + counts.skipped + counts.excluded
    return max(0, counts.total - settled - len(status.in_flight))


def rights_check(denied: Sequence[Right]) -> Check:
    """Judge which rights of the user are missing for verbs of this command."""
    about = "your rights"
    if not denied:
        return ok(about, "each verb of this command may be used")
    by_verb: dict[str, list[str]] = {}
    for right in denied:
        by_verb.setdefault(right.used_by, []).append(str(right))
    lacking = "; ".join(f"{', '.join(rights)} (for {verb})" for verb, rights in by_verb.items())
    return warning(about, f"you may not: {lacking}", "ask an administrator for them in RBAC")


def scheduler_checks(answer: StatusAnswer, *, now: float) -> list[Check]:
    """Judge the scheduler's answer: its leader, its sources and its clock."""
    checks = [ok("scheduler", f"{answer.leader or 'one'} leads {len(answer.pools)} pools")]
    behind = [
        f"{name} by {duration(age)}" for name, age in sorted(answer.sources.items()) if age > BEHIND
    ]
    if behind:
        remedy = "nodes wait for them meanwhile: see the logs of sluice-scheduler"
        checks.append(fault("scheduler's sources", f"behind: {some(behind)}", remedy))
    ahead = answer.at - now
    if abs(ahead) > CLOCKS_DIFFER:
        found = f"the scheduler's is {duration(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}"
        checks.append(warning("clocks", found, "set this machine's clock, or the nodes', by NTP"))
    else:
        checks.append(ok("clocks", "this machine's and the scheduler's agree"))
    return checks
