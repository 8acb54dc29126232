"""What makes pods, in a table: DaemonSets with their revisions, ReplicaSets, Deployments, Jobs."""

from libs.kube.times import parse_time
from libs.testing.apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    Cell,
    Object,
    column,
    count,
    labels_text,
    list_at,
    selector_text,
    true_condition,
    value_at,
    wide,
)
from libs.testing.apiserver.printers.durations import duration

_JOB_WORDS = (
    ("Complete", "Complete"),
    ("Failed", "Failed"),
    ("", "Terminating"),
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)
"""The condition that must hold for each word, the first that does counts; none: a deletion."""


def _containers(workload: Object, _now: float) -> Cell:
    return _each_container(workload, "name")


def _images(workload: Object, _now: float) -> Cell:
    return _each_container(workload, "image")


def _each_container(workload: Object, field: str) -> str:
    containers = list_at(workload, "spec", "template", "spec", "containers")
    return ",".join(container.get(field, "") for container in containers)


def _selector(workload: Object, _now: float) -> Cell:
    return selector_text(value_at(workload, "spec", "selector")) or NONE


def _bare_selector(workload: Object, _now: float) -> Cell:
    return selector_text(value_at(workload, "spec", "selector"))


def _node_selector(workload: Object, _now: float) -> Cell:
    return labels_text(workload, "spec", "template", "spec", "nodeSelector")


def _ready(deployment: Object, _now: float) -> Cell:
    ready = value_at(deployment, "status", "readyReplicas") or 0
    return f"{ready}/{value_at(deployment, 'spec', 'replicas') or 0}"


def _job_status(job: Object, _now: float) -> Cell:
    deleted = value_at(job, "metadata", "deletionTimestamp") is not None
    for condition, word in _JOB_WORDS:
        if true_condition(job, condition) if condition else deleted:
            return word
    return "Running"


def _completions(job: Object, _now: float) -> Cell:
    succeeded = value_at(job, "status", "succeeded") or 0
    completions = value_at(job, "spec", "completions")
    if completions is not None:
        return f"{succeeded}/{completions}"
    parallelism = value_at(job, "spec", "parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _took(job: Object, now: float) -> Cell:
    start = value_at(job, "status", "startTime")
    if not start:
        return ""
    end = value_at(job, "status", "completionTime")
    return duration((parse_time(end) if end else now) - parse_time(start))


def _controller(revision: Object, _now: float) -> Cell:
    for owner in list_at(revision, "metadata", "ownerReferences"):
        if owner.get("controller"):
            group, slash, _ = owner["apiVersion"].partition("/")
            kind = f"{owner['kind']}.{group}" if slash else owner["kind"]
            return f"{kind.lower()}/{owner['name']}"
    return NONE


_MADE_OF = (wide("Containers", _containers), wide("Images", _images))

DAEMON_SET = (
    NAME,
    column("Desired", count("status", "desiredNumberScheduled"), "integer"),
    column("Current", count("status", "currentNumberScheduled"), "integer"),
    column("Ready", count("status", "numberReady"), "integer"),
    column("Up-to-date", count("status", "updatedNumberScheduled"), "integer"),
    column("Available", count("status", "numberAvailable"), "integer"),
    column("Node Selector", _node_selector),
    AGE,
    *_MADE_OF,
    wide("Selector", _selector),
)
CONTROLLER_REVISION = (
    NAME,
    column("Controller", _controller),
    column("Revision", count("revision")),
    AGE,
)
REPLICA_SET = (
    NAME,
    column("Desired", count("spec", "replicas"), "integer"),
    column("Current", count("status", "replicas"), "integer"),
    column("Ready", count("status", "readyReplicas"), "integer"),
    AGE,
    *_MADE_OF,
    wide("Selector", _selector),
)
DEPLOYMENT = (
    NAME,
    column("Ready", _ready),
    column("Up-to-date", count("status", "updatedReplicas")),
    column("Available", count("status", "availableReplicas")),
    AGE,
    *_MADE_OF,
    wide("Selector", _bare_selector),
)
JOB = (
    NAME,
    column("Status", _job_status),
    column("Completions", _completions),
    column("Duration", _took),
    AGE,
    *_MADE_OF,
    wide("Selector", _selector),
)
