"""The chart's admission policies on the real API server: who writes which keys of a Node.

Every user here has all rights by RBAC, so that only the policies refuse.
"""

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from libs.contracts.message import encode
from libs.contracts.node import (
    DRIVER_LABEL,
    KEEP_CORDONED_LABEL,
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
    LeaseOwner,
    NodeLease,
)
from libs.contracts.node import VALIDATION_POD_ANNOTATION as OUTCOME
from libs.policy.installation import installation_objects
from libs.testing.realkube.cluster import RealKube
from tests.component.chart.api import (
    ADMISSION,
    BINDING,
    CONFIG_MAPS,
    NAMESPACE,
    NODES,
    PERSON,
    PLURALS,
    POLICY,
    Api,
    Node,
    account,
    config_map,
    path_of,
    settle,
)
from tests.component.chart.conftest import Render, run
from tests.component.chart.rendered import CHART, Object, of_kind, parsed
from tests.run.plan import GroundKind

KEYS: Final = "sluice-node-keys"
AGENTS: Final = "sluice-agents"
KUBELET: Final = "system:node:some"
GITOPS: Final = "system:serviceaccount:flux-system:kustomize"
pytestmark = GroundKind.CONTROL_PLANE.marker()


def lease(owner: LeaseOwner) -> str:
    return encode(NodeLease(node_uid="u", owner=owner, token=1, since=1.0)).decode()


HUMAN: Final = lease(LeaseOwner.HUMAN)
BY_HAND: Final = '{"v": 1, "node_uid": "u", "owner" : "human", "token": 7, "since": 1}'


@pytest.fixture(scope="module")
def api(plane: RealKube) -> Api:
    return Api(plane)


@pytest.fixture(scope="module")
def installed(api: Api, helm: Path) -> Iterator[list[Object]]:
    """Install the chart's policies once; wait until they act, and in the end until they do not."""
    text = run(helm, "template", "sluice", str(CHART), "--namespace", NAMESPACE)
    kinds = (POLICY, BINDING)
    objects = [
        each
        for each in parsed(text)
        if each["kind"] in kinds and each["metadata"]["name"] in (KEYS, AGENTS)
    ]
    assert len(objects) == 4
    try:
        for each in objects:
            assert api.refusal(PERSON, "POST", f"{ADMISSION}/{PLURALS[each['kind']]}", each) == ""
        settle(api, refused=True)
        yield objects
    finally:
        for each in reversed(objects):
            api.refusal(PERSON, "DELETE", path_of(each))
        settle(api, refused=False)


@pytest.fixture
def node(installed: list[Object], api: Api) -> Iterator[Node]:
    assert installed
    name = f"admission-{secrets.token_hex(4)}"
    assert api.refusal(PERSON, "POST", NODES, {"metadata": {"name": name}}) == ""
    node = Node(api, name)
    yield node
    api.refusal(PERSON, "DELETE", node.path)


ALLOWED: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "the scheduler writes what it owns": (
        account("scheduler"),
        {
            "labels": {DRIVER_LABEL: "d", STATE_LABEL: "upgrade-done"},
            "annotations": {LEASE_ANNOTATION: lease(LeaseOwner.UPGRADE), RECORD_ANNOTATION: "{}"},
        },
    ),
    "the scheduler clears a request": (
        account("scheduler"),
        {"annotations": {REQUEST_ANNOTATION: ""}},
    ),
    "the removal of Sluice cleans up": (
        account("uninstall"),
        {"labels": {DRIVER_LABEL: None}, "annotations": {RECORD_ANNOTATION: None}},
    ),
    "a person keeps the node cordoned": (PERSON, {"labels": {KEEP_CORDONED_LABEL: "true"}}),
    "a person requests": (PERSON, {"annotations": {REQUEST_ANNOTATION: "forget"}}),
    "automation requests": (GITOPS, {"annotations": {REQUEST_ANNOTATION: "adopt"}}),
    "a person retries": (PERSON, {"labels": {STATE_LABEL: "upgrade-required", SKIP_LABEL: "true"}}),
    "a person ends a lease": (PERSON, {"annotations": {LEASE_ANNOTATION: None}}),
    "a person takes the lease": (PERSON, {"annotations": {LEASE_ANNOTATION: HUMAN}}),
    "a person writes it by hand": (PERSON, {"annotations": {LEASE_ANNOTATION: BY_HAND}}),
    "a person claims the lease": (PERSON, {"annotations": {LEASE_CLAIM_ANNOTATION: HUMAN}}),
    "a person withdraws the claim": (PERSON, {"annotations": {LEASE_CLAIM_ANNOTATION: None}}),
    "a service labels for others": (
        account("discovery-cluster"),
        {"labels": {"nvidia.com/gpu.count": "8"}},
    ),
    "the driver service proves by a pod": (
        account("driver-cluster"),
        {"annotations": {OUTCOME: "{}"}},
    ),
    "a kubelet labels itself": (KUBELET, {"labels": {"example.com/zone": "a"}}),
}


def test_what_is_allowed(node: Node) -> None:
    refused = {
        what: answer
        for what, (user, change) in ALLOWED.items()
        if (answer := node.write(user, **change))
    }
    assert refused == {}


REFUSED: Final[Mapping[str, tuple[str, dict[str, Any], str]]] = {
    "a person's driver": (
        PERSON,
        {"labels": {DRIVER_LABEL: "other"}},
        f"writes the label {DRIVER_LABEL} of a Node",
    ),
    "no driver": (PERSON, {"labels": {DRIVER_LABEL: None}}, f"the label {DRIVER_LABEL}"),
    "a kubelet's driver": (KUBELET, {"labels": {DRIVER_LABEL: "x"}}, f"the label {DRIVER_LABEL}"),
    "by the status": (
        KUBELET,
        {"labels": {DRIVER_LABEL: "x"}, "part": "/status"},
        f"the label {DRIVER_LABEL}",
    ),
    "a person's record": (
        PERSON,
        {"annotations": {RECORD_ANNOTATION: None}},
        f"the annotation {RECORD_ANNOTATION}",
    ),
    "a key of tomorrow": (
        GITOPS,
        {"annotations": {"sluice.dev/new": "1", RECORD_ANNOTATION: "2"}},
        "sluice.dev/new",
    ),
    "an upgrade's lease": (
        PERSON,
        {"annotations": {LEASE_ANNOTATION: lease(LeaseOwner.UPGRADE)}},
        f"the annotation {LEASE_ANNOTATION}",
    ),
    "an upgrade's claim": (
        PERSON,
        {"annotations": {LEASE_CLAIM_ANNOTATION: lease(LeaseOwner.UPGRADE)}},
        f"the annotation {LEASE_CLAIM_ANNOTATION}",
    ),
    "two owners": (
        PERSON,
        {"annotations": {LEASE_ANNOTATION: '{"owner":"human","owner":"upgrade"}'}},
        f"the annotation {LEASE_ANNOTATION}",
    ),
    "an owner by escapes": (
        PERSON,
        {"annotations": {LEASE_ANNOTATION: '{"owner":"human","own\\u0065r":"upgrade"}'}},
        f"the annotation {LEASE_ANNOTATION}",
    ),
    "a service's driver": (
        account("driver-cluster"),
        {"labels": {DRIVER_LABEL: "x"}},
        "no service but the scheduler",
    ),
    "another service's outcome": (
        account("validator-cluster"),
        {"annotations": {OUTCOME: "{}"}},
        "no service but the scheduler",
    ),
    "a person's outcome": (
        PERSON,
        {"annotations": {OUTCOME: "{}"}},
        f"annotation {OUTCOME}",
    ),
    "a service's request": (
        account("discovery-cluster"),
        {"annotations": {REQUEST_ANNOTATION: "adopt"}},
        "no service but the scheduler",
    ),
    "a scheduler of another namespace": (
        "system:serviceaccount:tenant:sluice-scheduler",
        {"labels": {DRIVER_LABEL: "x"}},
        "only the scheduler of Sluice",
    ),
}


def test_what_is_refused(node: Node) -> None:
    node.given(labels={DRIVER_LABEL: "d"}, annotations={RECORD_ANNOTATION: "{}"})
    wrong: dict[str, str] = {}
    for what, (user, change, message) in REFUSED.items():
        answer = node.write(user, **change)
        if message not in answer or not answer.startswith("Forbidden: "):
            wrong[what] = answer
    assert wrong == {}


def test_a_person_ends_a_lease_but_does_not_take_it_over(node: Node) -> None:
    upgrade = {LEASE_ANNOTATION: lease(LeaseOwner.UPGRADE)}
    node.given(annotations=upgrade)
    assert "sluice.dev/lease" in node.write(PERSON, annotations={LEASE_ANNOTATION: HUMAN})
    assert node.write(PERSON, annotations={LEASE_ANNOTATION: None}) == ""
    assert node.write(PERSON, annotations={LEASE_ANNOTATION: HUMAN}) == ""
    assert node.write(PERSON, annotations={LEASE_ANNOTATION: BY_HAND}) == ""
    assert node.write(account("scheduler"), annotations=upgrade) == ""


def test_other_writes_to_a_managed_node_go_through(node: Node) -> None:
    """Kubelets, people and controllers go on with a Node that has all of Sluice's keys."""
    node.given(
        labels={DRIVER_LABEL: "d", KEEP_CORDONED_LABEL: "true"},
        annotations={RECORD_ANNOTATION: "{}", LEASE_ANNOTATION: HUMAN, REQUEST_ANNOTATION: "x"},
    )
    for user in (PERSON, KUBELET, account("discovery-cluster")):
        assert node.write(user, annotations={"example.com/seen": user}) == ""
        assert node.write(user, labels={"a.example/b": "c"}, part="/status") == ""
    assert node.write(PERSON, labels={KEEP_CORDONED_LABEL: None}) == ""


def test_the_message_says_what_people_may_do(node: Node) -> None:
    answer = node.write(PERSON, labels={DRIVER_LABEL: "x"})
    assert answer.strip().endswith(
        f"only the scheduler of Sluice writes the label {DRIVER_LABEL} of a Node: people write the"
        f" label {KEEP_CORDONED_LABEL}, the annotation {REQUEST_ANNOTATION}, and a lease or the"
        " claim of one with the owner human, and may end any lease; in an emergency an"
        f" administrator deletes the {BINDING} {KEYS} (docs/install.md)"
    )


def test_in_an_emergency_the_binding_is_deleted(
    node: Node, api: Api, installed: list[Object]
) -> None:
    """Nothing refuses that to an administrator; the next `helm upgrade` brings it back."""
    assert node.write(PERSON, labels={DRIVER_LABEL: "x"}) != ""
    bindings = [each for each in installed if each["kind"] == BINDING]
    assert [api.refusal(PERSON, "DELETE", path_of(each)) for each in bindings] == ["", ""]
    settle(api, refused=False)
    assert node.write(PERSON, labels={DRIVER_LABEL: "x"}) == ""
    for each in bindings:
        assert api.refusal(PERSON, "POST", f"{ADMISSION}/{PLURALS[BINDING]}", each) == ""
    settle(api, refused=True)


def test_accounts_without_rights_write_nothing(installed: list[Object], api: Api) -> None:
    """Also with rights that somebody gives them by mistake."""
    assert installed
    create = "POST", f"{CONFIG_MAPS}?dryRun=All", config_map()
    for name in sorted(without_rights()):
        answer = api.refusal(account(name), *create)
        assert f"{account(name)} is an account of Sluice that signs in to NATS only" in answer
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view?dryRun=All"
    for method, path, body in (
        ("POST", f"{NODES}?dryRun=All", {"metadata": {"name": "new"}}),
        ("DELETE", role, None),
        ("PATCH", role, {"metadata": {"labels": {"a": "b"}}}),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}}),
    ):
        answer = api.refusal(account("driver"), method, path, body)
        assert "writes nothing in Kubernetes" in answer, path
    assert api.refusal(PERSON, *create) == ""


def without_rights() -> set[str]:
    """Return the accounts that no role is bound to, and that of NATS, without the prefix."""
    objects = installation_objects(NAMESPACE)
    accounts = {each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"}
    bound = {
        subject["name"]
        for each in objects
        if each["kind"].endswith("RoleBinding")
        for subject in each["subjects"]
    }
    return {name.removeprefix("sluice-") for name in {*accounts - bound, "sluice-nats"}}


def test_the_policy_lists_the_accounts_without_rights(render: Render) -> None:
    policy = of_kind(render(), POLICY)[AGENTS]
    (condition,) = policy["spec"]["matchConditions"]
    listed = condition["expression"].partition("[")[2].partition("]")[0]
    names = {each.strip(" '") for each in listed.split(",")}
    assert names == {account(name) for name in without_rights()}


def test_policies_can_be_switched_off_and_need_an_api_server_that_has_them(render: Render) -> None:
    limits = {f"{NAMESPACE}-sluice-{each}" for each in ("dra", "nodes", "operands")}
    assert set(of_kind(render("--set", "admission.enabled=false"), POLICY)) == limits
    assert of_kind(render("--kube-version", "1.29.0"), POLICY) == {}
    assert set(of_kind(render("--kube-version", "1.30.0"), POLICY)) == {KEYS, AGENTS, *limits}
