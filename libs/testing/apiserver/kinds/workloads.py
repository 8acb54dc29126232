"""Pods, what makes pods, and what protects them: how the server fills in and judges them."""

from collections.abc import Mapping
from typing import Any, ClassVar

from libs.testing.apiserver.kinds import names, podspecs
from libs.testing.apiserver.kinds.names import Cause
from libs.testing.apiserver.kinds.refusals import forbidden, invalid_value, required
from libs.testing.apiserver.kinds.strategies import Strategy
from libs.testing.apiserver.objects.encoding import encoded
from libs.testing.apiserver.objects.parts import Thing, items, made, part
from libs.testing.apiserver.objects.selectors import from_object

_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_POD_UPDATES = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)
_BY_DEFAULT = tuple(
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
)


class Pods(Strategy):
    """A pod begins Pending; of its spec little can change."""

    returns_deleted = True

    def fill(self, thing: Thing) -> None:
        """All that a pod can do without saying."""
        spec = made(thing, "spec")
        podspecs.fill(spec)
        podspecs.ask(spec)
        spec.setdefault("enableServiceLinks", True)

    def begin(self, thing: Thing) -> None:
        """What admission adds, and its first status."""
        spec: Thing = dict(thing["spec"])
        tolerations = items(spec, "tolerations")
        added = [each for each in _BY_DEFAULT if not _tolerated(each, tolerations)]
        if added:
            spec["tolerations"] = [*tolerations, *added]
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        thing["spec"] = spec
        thing["status"] = {"phase": "Pending", "qosClass": podspecs.quality(spec)}

    def flaws(self, thing: Mapping[str, Any]) -> list[Cause]:
        """Of its containers."""
        return _containers(part(thing, "spec"), "spec")

    def breaches(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
        """Nearly everything in its spec stays."""
        if _fixed(new, old) != _fixed(old, old):
            return [forbidden("spec", _POD_UPDATES)]
        return []


def _tolerated(taint: Mapping[str, Any], tolerations: list[Thing]) -> bool:
    return any(
        each.get("key") in (taint["key"], None, "")
        and each.get("effect") in (taint["effect"], None, "")
        for each in tolerations
    )


def _fixed(thing: Mapping[str, Any], old: Mapping[str, Any]) -> Thing:
    """A pod's spec without what may change."""
    spec = {**part(thing, "spec")}
    spec.pop("activeDeadlineSeconds", None)
    before = items(old, "spec", "tolerations")
    spec["tolerations"] = [each for each in items(spec, "tolerations") if each in before]
    for name in ("containers", "initContainers"):
        spec[name] = [{**each, "image": ""} for each in items(spec, name)]
    return spec


def _containers(spec: Mapping[str, Any], at: str) -> list[Cause]:
    if not spec.get("containers"):
        return [required(f"{at}.containers", "")]
    found: list[Cause] = []
    for kind in ("containers", "initContainers"):
        for place, container in enumerate(items(spec, kind)):
            field = f"{at}.{kind}[{place}]"
            name = container.get("name", "")
            if not name:
                found.append(required(f"{field}.name", ""))
            elif why := names.label(name):
                found.append(invalid_value(f"{field}.name", name, why))
            if not container.get("image"):
                found.append(required(f"{field}.image", ""))
    return found


class Templated(Strategy):
    """What makes pods from a template that its selector must find."""

    first_status: ClassVar[Thing] = {}

    def fill(self, thing: Thing) -> None:
        """The template's pods."""
        podspecs.fill(made(made(made(thing, "spec"), "template"), "spec"))

    def begin(self, thing: Thing) -> None:
        """Nothing is known of it yet."""
        thing["status"] = dict(self.first_status)

    def flaws(self, thing: Mapping[str, Any]) -> list[Cause]:
        """A selector that does not find the template, and its containers."""
        labels = part(thing, "spec", "template", "metadata").get("labels")
        selector = part(thing, "spec", "selector")
        found: list[Cause] = []
        empty = not selector.get("matchLabels") and not selector.get("matchExpressions")
        if empty or not from_object(selector)(labels or {}):
            field = "spec.template.metadata.labels"
            shown = encoded(labels).decode()
            found.append(_raw(field, shown, "`selector` does not match template `labels`"))
        return found + _containers(part(thing, "spec", "template", "spec"), "spec.template.spec")

    def breaches(self, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
        """Another selector."""
        selector = part(new, "spec", "selector")
        if selector != part(old, "spec", "selector"):
            return [_raw("spec.selector", encoded(selector).decode(), "field is immutable")]
        return []


def _raw(field: str, words: str, why: str) -> Cause:
    return {
        "reason": "FieldValueInvalid",
        "message": f"Invalid value: {words}: {why}",
        "field": field,
    }


class DaemonSets(Templated):
    """One pod a node."""

    first_status: ClassVar[Thing] = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }

    def fill(self, thing: Thing) -> None:
        """How it is rolled out, and how many templates are remembered."""
        super().fill(thing)
        spec = thing["spec"]
        strategy = made(spec, "updateStrategy")
        if not strategy.get("type"):
            strategy["type"] = "RollingUpdate"
        if strategy["type"] == "RollingUpdate":
            rolling = made(strategy, "rollingUpdate")
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)
        made(thing["metadata"], "annotations").setdefault(_TEMPLATE_GENERATION, "1")

    def carry(self, new: Thing, old: Mapping[str, Any]) -> None:
        """The count of its templates."""
        count = int(part(old, "metadata", "annotations").get(_TEMPLATE_GENERATION, "1"))
        if new["spec"].get("template") != old["spec"].get("template"):
            count += 1
        new["metadata"]["annotations"][_TEMPLATE_GENERATION] = str(count)


class Deployments(Templated):
    """Pods that are replaced by newer ones."""

    def fill(self, thing: Thing) -> None:
        """How many, and how they are replaced."""
        super().fill(thing)
        spec = thing["spec"]
        spec.setdefault("replicas", 1)
        strategy = made(spec, "strategy")
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = made(strategy, "rollingUpdate")
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)


class ReplicaSets(Templated):
    """So many pods."""

    first_status: ClassVar[Thing] = {"replicas": 0}

    def fill(self, thing: Thing) -> None:
        """How many."""
        super().fill(thing)
        thing["spec"].setdefault("replicas", 1)


class Jobs(Templated):
    """Pods that end."""

    def fill(self, thing: Thing) -> None:
        """How many, and how often they may fail."""
        super().fill(thing)
        spec = thing["spec"]
        spec.setdefault("parallelism", 1)
        spec.setdefault("completions", 1)
        spec.setdefault("backoffLimit", 6)
        spec.setdefault("manualSelector", False)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")

    def carry(self, new: Thing, old: Mapping[str, Any]) -> None:
        """The labels by which it finds its pods."""
        new["spec"]["selector"] = old["spec"].get("selector")
        metadata = made(new["spec"]["template"], "metadata")
        theirs = part(old, "spec", "template", "metadata", "labels")
        metadata["labels"] = {**part(metadata, "labels"), **theirs}

    def begin(self, thing: Thing) -> None:
        """The labels by which it finds its pods."""
        super().begin(thing)
        metadata, spec = thing["metadata"], dict(thing["spec"])
        marks = {
            "batch.kubernetes.io/controller-uid": metadata["uid"],
            "batch.kubernetes.io/job-name": metadata["name"],
            "controller-uid": metadata["uid"],
            "job-name": metadata["name"],
        }
        labelled = part(spec, "template", "metadata")
        labelled = {**labelled, "labels": {**part(labelled, "labels"), **marks}}
        spec["template"] = {**spec["template"], "metadata": labelled}
        key = "batch.kubernetes.io/controller-uid"
        spec["selector"] = {"matchLabels": {key: metadata["uid"]}}
        thing["spec"] = spec
        metadata["labels"] = {**part(metadata, "labels"), **marks}


class Budgets(Strategy):
    """How many pods must stay."""

    def begin(self, thing: Thing) -> None:
        """Nothing may go before a controller has looked."""
        counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        thing["status"] = dict.fromkeys(counts, 0)

    def flaws(self, thing: Mapping[str, Any]) -> list[Cause]:
        """Both bounds at once."""
        spec = part(thing, "spec")
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            words = "minAvailable and maxUnavailable cannot be both set"
            return [_raw("spec", encoded(spec).decode(), words)]
        return []
