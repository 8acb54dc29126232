"""What is removed from Nodes, when nothing may be, and the pod that undoes."""

from typing import Any

import msgspec
import pytest

from libs.contracts import node as on_node
from libs.contracts.identities import Writer
from libs.contracts.node import LeaseOwner, NodeLease
from libs.kube.views import ManagedFields, Metadata, Node, NodeSpec, Taint
from libs.policy.render.agents import AGENTS
from libs.policy.render.rendered import RenderedObject
from services.discovery.cluster import resources as discovery
from services.discovery.cluster import role as discovery_role
from services.discovery.cluster.device_health import GPU_HEALTHY
from services.driver.cluster.resources import MANAGER
from services.driver.cluster.role import LEASE
from services.driver.uninstall import objects, traces
from services.driver.uninstall.traces import (
    appliers,
    is_leased,
    is_undoing,
    kept_fields,
    keys_to_remove,
    undo_change,
)
from services.scheduler import role as scheduler_role
from services.signin.setup.contents import CA, SECRETS
from services.signin.setup.role import MANAGER as SETUP
from tests.builders.fleet import written
from tests.unit.policy.situations import Situation, cluster_policy

SCHEDULER = on_node.MANAGER


def fields(manager: str, *keys: str, operation: str = "Apply", **more: Any) -> ManagedFields:
    labels = {f"f:{key}": {} for key in keys}
    text = msgspec.json.encode({"f:metadata": {"f:labels": {".": {}, **labels}}})
    return ManagedFields(manager=manager, operation=operation, fields_v1=msgspec.Raw(text), **more)


def leased(text: NodeLease | str) -> Node:
    return Node(metadata=Metadata(name="n", annotations=written(lease=text)))


def lease(owner: LeaseOwner) -> NodeLease:
    return NodeLease(node_uid="u", owner=owner, token=1, since=0.0)


@pytest.mark.parametrize("owner", [LeaseOwner.UPGRADE, LeaseOwner.REPAIR, LeaseOwner.MIG])
def test_an_operation_holds_the_removal_up(owner: LeaseOwner) -> None:
    assert is_leased(leased(lease(owner)))


def test_a_person_does_not_and_what_is_unreadable_does() -> None:
    assert not is_leased(leased(lease(LeaseOwner.HUMAN)))
    assert not is_leased(Node(metadata=Metadata(name="n")))
    assert is_leased(leased("{"))


def test_only_managers_of_ours_apply_nothing() -> None:
    metadata = Metadata(
        name="n",
        managed_fields=(
            fields(SCHEDULER),
            fields(MANAGER, operation="Update"),
            fields(traces.DISCOVERY, subresource="status"),
            fields("helm"),
        ),
    )
    assert appliers(metadata) == [SCHEDULER]


def test_our_keys_go_and_shared_ones_stay() -> None:
    metadata = Metadata(
        name="n",
        labels={"a": "", "shared": "", "theirs": "", "sluice.dev/of-people": ""},
        annotations={"sluice.dev/request": "", "kept": ""},
        managed_fields=(
            fields(MANAGER, "a", "shared", "gone", operation="Update"),
            fields("kubectl", "shared", "theirs", "sluice.dev/of-people", operation="Update"),
        ),
    )
    assert keys_to_remove(metadata) == {
        "labels": {"a": None, "sluice.dev/of-people": None},
        "annotations": {"sluice.dev/request": None},
    }
    assert keys_to_remove(Metadata(name="n", labels={"theirs": ""})) == {}


def driver_agent() -> dict[str, Any]:
    """Return the spec of the driver agent's DaemonSet."""
    rendered = Situation([cluster_policy(daemonsets={"updateStrategy": "OnDelete"})]).rendering()
    agent = next(each for each in AGENTS if each.component is Writer.DRIVER)

    def is_agent(each: RenderedObject) -> bool:
        return each.name == agent.name

    return next(filter(is_agent, rendered.objects)).object["spec"]


def test_the_undoing_pod_has_the_host_and_the_settings_of_the_agent() -> None:
    before = driver_agent()
    assert not is_undoing(before)
    change = undo_change(before)["spec"]
    assert is_undoing(change)
    assert change["updateStrategy"]["type"] == "RollingUpdate"
    pod, was = change["template"]["spec"], before["template"]["spec"]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.present": None, "kubernetes.io/os": "linux"}
    (container,), (agent,) = pod["containers"], was["containers"]
    same = {"args", "volumeMounts"}
    assert {key: container[key] for key in container.keys() - same} == {
        key: agent[key] for key in agent.keys() - same
    }
    assert {each["name"] for each in pod["volumes"]} == {"host-root", "dev"}
    assert {each["name"] for each in container["volumeMounts"]} == {"host-root", "dev"}
    of_agent = {"state", "bus-token", "persistenced"}
    assert {each["name"] for each in was["volumes"]} == {"host-root", "dev", *of_agent}


def test_names_are_those_of_the_services() -> None:
    assert discovery.MANAGER == traces.DISCOVERY
    assert GPU_HEALTHY == traces.CONDITION
    assert (objects.SETUP, objects.SECRETS, objects.CA) == (SETUP, SECRETS, CA)
    assert {discovery_role.LEASE, LEASE, scheduler_role.LEASE} == set(objects.LEADERS)


def test_the_taints_of_others_stay_where_the_scheduler_owns_their_list() -> None:
    """Of a node whose startup taint it removed: left out of the apply, all would go."""
    text = msgspec.Raw(msgspec.json.encode({"f:spec": {"f:taints": {}}}))
    ours = ManagedFields(manager=SCHEDULER, operation="Apply", fields_v1=text)
    taints = (
        Taint(key="a", effect="NoSchedule", value="b", time_added="2027-01-15T08:00:00Z"),
        Taint(key="c", effect="NoExecute"),
    )
    spec = NodeSpec(taints=taints)
    node = Node(metadata=Metadata(name="n", managed_fields=(ours,)), spec=spec)
    assert kept_fields(SCHEDULER, node) == {
        "metadata": {"name": "n"},
        "spec": {
            "taints": [
                {
                    "key": "a",
                    "effect": "NoSchedule",
                    "value": "b",
                    "timeAdded": "2027-01-15T08:00:00Z",
                },
                {"key": "c", "effect": "NoExecute"},
            ]
        },
    }
    assert kept_fields(MANAGER, node) == {"metadata": {"name": "n"}}
    assert kept_fields(SCHEDULER, Node(metadata=Metadata(name="n"), spec=spec)) == {
        "metadata": {"name": "n"}
    }
