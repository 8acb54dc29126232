"""What the installation's policies limit accounts of services to, on the real API server.

Every user here has all rights by RBAC, so that only the policies refuse.
"""

import copy
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from libs.contracts.node import (
    DRIVER_LABEL,
    MIG_CONFIG_LABEL,
    SKIP_LABEL,
    STATE_LABEL,
    VALIDATION_POD_ANNOTATION,
)
from libs.policy.installation import installation_objects
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.render.validation_pod import render_validation_pod
from libs.policy.validation import OWNER_LABEL
from libs.testing.realkube.cluster import RealKube
from services.driver.dra.resources import DRIVER
from services.driver.dra.resources import Node as DraNode
from services.driver.dra.slices import slice_of
from tests.component.chart.api import (
    ADMISSION,
    NAMESPACE,
    NODES,
    PERSON,
    PLURALS,
    Api,
    Node,
    account,
    path_of,
)
from tests.component.chart.rendered import Object
from tests.run.plan import GroundKind
from tests.unit.policy.goldens import golden_objects
from tests.unit.policy.situations import SETTINGS, SITUATIONS
from tests.unit.policy.test_effects import changed_policies, render

DISCOVERY: Final = account("discovery-cluster")
SERVICE: Final = account("driver-cluster")
PLUGIN: Final = account("dra")
NAMESPACES: Final = "/api/v1/namespaces"
DAEMON_SETS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets?dryRun=All"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices?dryRun=All"
Change = Callable[[Any], None]
pytestmark = GroundKind.CONTROL_PLANE.marker()


@pytest.fixture(scope="module")
def api(plane: RealKube) -> Iterator[Api]:
    """Install the policies once; wait until they act, and in the end until they do not."""
    api = Api(plane)
    assert SETTINGS.namespace == NAMESPACE
    answer = api.refusal(PERSON, "POST", NAMESPACES, {"metadata": {"name": NAMESPACE}})
    assert answer == "" or answer.startswith("AlreadyExists")
    objects = [
        each
        for each in installation_objects(NAMESPACE)
        if each["kind"] in PLURALS or each["kind"] == "ServiceAccount"
    ]
    policies = [each for each in objects if each["kind"] in PLURALS]
    assert len(policies) == 6
    accounts = f"{NAMESPACES}/{NAMESPACE}/serviceaccounts"
    try:
        for each in objects:
            path = f"{ADMISSION}/{PLURALS[each['kind']]}" if each in policies else accounts
            answer = api.refusal(PERSON, "POST", path, each)
            assert answer == "" or answer.startswith("AlreadyExists")
        _settle(api, refused=True)
        yield api
    finally:
        for each in reversed(policies):
            api.refusal(PERSON, "DELETE", path_of(each))
        _settle(api, refused=False)


def _settle(api: Api, *, refused: bool) -> None:
    node = {"metadata": {"name": "probe"}}
    slice_ = {"metadata": {"name": "x"}, "spec": _slice("x")["spec"]}
    pod = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    labelled = {"metadata": {"labels": {"b": "c"}}}
    api.refusal(PERSON, "POST", NODES, node)
    until = time.monotonic() + 60
    for user, method, path, body in (
        (DISCOVERY, "PATCH", f"{NODES}/probe?dryRun=All", labelled),
        (SERVICE, "POST", PODS, pod),
        (PLUGIN, "POST", SLICES, slice_),
    ):
        while ("Forbidden" in api.refusal(user, method, path, body, node="n")) != refused:
            if time.monotonic() > until:
                pytest.fail(f"{user} is {'not ' if refused else ''}refused after a minute")
            time.sleep(0.2)
    api.refusal(PERSON, "DELETE", f"{NODES}/probe")


@pytest.fixture
def node(api: Api) -> Iterator[Node]:
    name = f"limits-{secrets.token_hex(4)}"
    assert api.refusal(PERSON, "POST", NODES, {"metadata": {"name": name}}) == ""
    node = Node(api, name)
    ready = [{"type": "Ready", "status": "True"}]
    status = {"conditions": ready, "capacity": {"cpu": "4"}}
    assert api.refusal(PERSON, "PATCH", f"{node.path}/status", {"status": status}) == ""
    yield node
    api.refusal(PERSON, "DELETE", node.path)


def condition(kind: str, status: str) -> Object:
    return {"type": kind, "status": status}


def status(*conditions: Object) -> Object:
    return {"status": {"conditions": [condition("Ready", "True"), *conditions]}}


def labels(**changes: str | None) -> Object:
    return {"metadata": {"labels": changes}}


def annotations(**changes: str | None) -> Object:
    return {"metadata": {"annotations": changes}}


NODE_WRITES: Final[Mapping[str, tuple[str, str, Object, str]]] = {
    "discovery labels": (DISCOVERY, "", labels(**{"nvidia.com/gpu.count": "8"}), ""),
    "features": (DISCOVERY, "", labels(**{"feature.node.kubernetes.io/x": "y"}), ""),
    "operands": (DISCOVERY, "", labels(**{"nvidia.com/gpu.deploy.driver": "true"}), ""),
    "removal": (DISCOVERY, "", labels(**{"nvidia.com/gpu.count": None}), ""),
    "health": (DISCOVERY, "/status", status(condition("GPUHealthy", "False")), ""),
    "an owner": (SERVICE, "", labels(**{OWNER_LABEL: "p"}), ""),
    "an outcome": (SERVICE, "", annotations(**{VALIDATION_POD_ANNOTATION: "{}"}), ""),
    "a vendor's label": (DISCOVERY, "", labels(**{"a.example/b": "c"}), ""),
    "a label without a domain": (DISCOVERY, "", labels(b="c"), "no others"),
    "a label of Kubernetes": (DISCOVERY, "", labels(**{"kubernetes.io/os": "x"}), "no others"),
    "a role": (
        DISCOVERY,
        "",
        labels(**{"node-role.kubernetes.io/control-plane": ""}),
        "no others",
    ),
    "a state": (DISCOVERY, "", labels(**{STATE_LABEL: "upgrade-done"}), "no others"),
    "a skip": (DISCOVERY, "", labels(**{SKIP_LABEL: "true"}), "no others"),
    "a division": (DISCOVERY, "", labels(**{MIG_CONFIG_LABEL: "all-1g.5gb"}), "no others"),
    "a foreign owner": (DISCOVERY, "", labels(**{OWNER_LABEL: "q"}), "no others"),
    "labels by status": (DISCOVERY, "/status", labels(**{DRIVER_LABEL: "d"}), "no others"),
    "an annotation": (DISCOVERY, "", annotations(**{"a.example/b": "c"}), "no annotation"),
    "a cordon": (DISCOVERY, "", {"spec": {"unschedulable": True}}, "cordons or taints"),
    "a taint": (
        DISCOVERY,
        "",
        {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
        "cordons or taints",
    ),
    "a finalizer": (DISCOVERY, "", {"metadata": {"finalizers": ["a.b/c"]}}, "is deleted"),
    "not ready": (
        DISCOVERY,
        "/status",
        {"status": {"conditions": [condition("Ready", "False")]}},
        "condition GPUHealthy alone",
    ),
    "no condition": (DISCOVERY, "/status", {"status": {"conditions": []}}, "GPUHealthy alone"),
    "capacity": (
        DISCOVERY,
        "/status",
        {"status": {"capacity": {"nvidia.com/gpu": "8"}}},
        "condition GPUHealthy alone",
    ),
    "a driver": (SERVICE, "", labels(**{DRIVER_LABEL: "d"}), "no others"),
    "a count": (SERVICE, "", labels(**{"nvidia.com/gpu.count": "8"}), "no others"),
    "a service's taint": (
        SERVICE,
        "",
        {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
        "cordons or taints",
    ),
    "a service's health": (
        SERVICE,
        "/status",
        status(condition("GPUHealthy", "True")),
        "the driver service nothing",
    ),
    "a person's taint": (
        PERSON,
        "",
        {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
        "",
    ),
}


def test_services_write_their_keys_of_nodes_alone(node: Node, api: Api) -> None:
    wrong: dict[str, str] = {}
    for what, (user, part, change, message) in NODE_WRITES.items():
        answer = api.refusal(user, "PATCH", f"{node.path}{part}", change)
        if (message not in answer or not answer.startswith("Forbidden: ")) if message else answer:
            wrong[what] = answer
    assert wrong == {}


def daemon_sets() -> Iterator[Object]:
    """Yield each DaemonSet of the golden files, and of policies with any field set, once."""
    situations = [golden_objects(name) for name in SITUATIONS]
    fields = [[each.object for each in render(to).objects] for _, to in changed_policies()]
    found = {
        json.dumps(each["spec"]["template"]): each
        for objects in (*situations, *fields)
        for each in objects
        if each["kind"] == "DaemonSet"
    }
    yield from found.values()


@pytest.mark.dear("renders a policy for each field")
def test_every_daemon_set_that_is_rendered_may_be_applied(api: Api) -> None:
    rendered = list(daemon_sets())
    assert len(rendered) > 100
    refused = {
        each["metadata"]["name"]: answer
        for each in rendered
        if (answer := api.refusal(SERVICE, "POST", DAEMON_SETS, each))
        and "AlreadyExists" not in answer
    }
    assert refused == {}


def with_(path: str, value: Any) -> Change:
    """Return a change of a field of a pod, `a.0.b`; the lists of a container grow."""

    def change(pod: Any) -> None:
        *parents, last = path.split(".")
        for each in parents:
            pod = pod[int(each)] if each.isdigit() else pod.setdefault(each, {})
        if isinstance(value, list) and isinstance(pod.get(last), list):
            pod[last] = [*pod[last], *value]
        else:
            pod[last] = value

    return change


def volume(**source: Any) -> Change:
    return with_("volumes", [{"name": "more", **source}])


def projected(**source: Any) -> Change:
    return volume(projected={"sources": [source]})


def from_secret(name: str) -> Object:
    return {"secretRef": {"name": name}}


_SEED: Final = {"name": "S", "valueFrom": {"secretKeyRef": {"name": "any", "key": "k"}}}
HOSTILE: Final[Mapping[str, tuple[Change, str]]] = {
    "another account": (with_("serviceAccountName", "sluice-scheduler"), "have an account"),
    "its own account": (with_("serviceAccountName", "sluice-driver-cluster"), "have an account"),
    "the default account": (with_("serviceAccountName", "default"), "have an account"),
    "a token": (with_("automountServiceAccountToken", True), "no token for the API server"),
    "a Secret": (volume(secret={"secretName": "sluice-signin-keys"}), "nothing else"),
    "a projected Secret": (projected(secret={"name": "sluice-signin-keys"}), "nothing else"),
    "a projected token": (
        projected(serviceAccountToken={"path": "token", "expirationSeconds": 3600}),
        "nothing else",
    ),
    "a token for others": (
        projected(serviceAccountToken={"path": "token", "audience": "vault"}),
        "nothing else",
    ),
    "a claim of storage": (volume(persistentVolumeClaim={"claimName": "x"}), "nothing else"),
    "a key": (with_("containers.0.env", [_SEED]), "no Secret in their environment"),
    "all keys": (
        with_("containers.0.envFrom", [from_secret("sluice-signin-keys")]),
        "no Secret in their environment",
    ),
    "keys at the beginning": (
        with_("initContainers", [{"name": "i", "image": "i", "env": [_SEED]}]),
        "no Secret in their environment",
    ),
    "the network": (with_("hostNetwork", True), "a network of their own"),
    "memory of others": (with_("hostIPC", True), "a network of their own"),
}


def test_daemon_sets_that_sluice_does_not_render_are_refused(api: Api) -> None:
    (name, *_) = SITUATIONS
    agents = [each for each in golden_objects(name) if each["kind"] == "DaemonSet"]
    agent = next(each for each in agents if each["metadata"]["name"] == "sluice-driver-agent")
    wrong: dict[str, str] = {}
    for what, (change, message) in HOSTILE.items():
        changed = copy.deepcopy(agent)
        change(changed["spec"]["template"]["spec"])
        answer = api.refusal(SERVICE, "POST", DAEMON_SETS, changed)
        if message not in answer or not answer.startswith("Forbidden: "):
            wrong[what] = answer
        assert api.refusal(PERSON, "POST", DAEMON_SETS, changed) == ""
    assert wrong == {}


HOSTILE_PODS: Final[Mapping[str, tuple[Change, str]]] = {
    **HOSTILE,
    "privileged": (with_("containers.0.securityContext", {"privileged": True}), "not privileged"),
    "a capability": (
        with_("containers.0.securityContext", {"capabilities": {"add": ["SYS_ADMIN"]}}),
        "not privileged",
    ),
    "processes": (with_("hostPID", True), "not privileged"),
    "the host": (volume(hostPath={"path": "/"}), "mount nothing of the host"),
    "any Secret": (
        with_("containers.0.envFrom", [from_secret("registry")]),
        "no Secret in their environment",
    ),
}


def test_single_pods_are_not_privileged_and_mount_nothing_of_the_host(api: Api) -> None:
    policy = SITUATIONS[next(iter(SITUATIONS))].pools().cluster
    assert isinstance(policy, ClusterPolicy)
    pod = render_validation_pod(
        policy, SETTINGS, node="n", node_uid="u", order="o", resource="nvidia.com/gpu"
    )
    pod = {**pod, "spec": {**pod["spec"], "priorityClassName": ""}}
    assert api.refusal(SERVICE, "POST", PODS, pod) == ""
    wrong: dict[str, str] = {}
    for what, (change, message) in HOSTILE_PODS.items():
        changed: Any = copy.deepcopy(pod)
        changed["spec"]["containers"][0].setdefault("env", [])
        change(changed["spec"])
        answer = api.refusal(SERVICE, "POST", PODS, changed)
        if message not in answer or not answer.startswith("Forbidden: "):
            wrong[what] = answer
    assert wrong == {}


def _slice(node: str) -> Object:
    return slice_of(DraNode(name=node, uid="u"), (), version="v1")


def test_the_plugin_for_claims_writes_the_slice_of_its_own_node_alone(api: Api) -> None:
    own = _slice("own")
    assert api.refusal(PLUGIN, "POST", SLICES, own, node="own") == ""
    foreign = _slice("other")
    squats = {
        "all": foreign,
        "the name": {**own, "metadata": foreign["metadata"]},
        "a name that begins alike": {**own, "metadata": {"name": f"own-2-{DRIVER}"}},
        "the pool": {**own, "spec": {**own["spec"], "pool": foreign["spec"]["pool"]}},
        "the node": {**own, "spec": {**own["spec"], "nodeName": "other"}},
        "the driver": {**own, "spec": {**own["spec"], "driver": "other.example"}},
        "every node": {**own, "spec": {**own["spec"], "nodeName": None, "allNodes": True}},
    }
    for what, each in squats.items():
        answer = api.refusal(PLUGIN, "POST", SLICES, each, node="own")
        assert "may write the slice of its own node only" in answer, what
        assert answer.startswith("Forbidden: "), what
