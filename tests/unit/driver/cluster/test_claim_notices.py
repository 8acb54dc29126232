"""Which claims wait, and why."""

from typing import Any

from libs.kube.views import Pod
from libs.kube.views.claims import ResourceClaim
from services.driver.cluster.claim_notices import SWITCHED_OFF, Notice, notices
from tests.builders import objects
from tests.builders.objects import condition, metadata, seen

KEPT = "pods that have started keep their GPUs, others wait"


def claim(name: str, node: str, *, driver: str = "gpu.nvidia.com") -> ResourceClaim:
    results = [{"driver": driver, "pool": node, "device": "gpu-0", "request": "gpu"}]
    consumers = [
        {"resource": "pods", "name": f"pod-of-{name}", "uid": f"pod-{name}"},
        {"apiGroup": "x.example", "resource": "others", "name": "o", "uid": "o"},
    ]
    allocated = {"allocation": {"devices": {"results": results}}, "reservedFor": consumers}
    return claim_with(name, allocated)


def claim_with(name: str, status: dict[str, Any]) -> ResourceClaim:
    named = metadata(name, namespace="ml", uid=f"uid-{name}")
    return seen(ResourceClaim, {"metadata": named, "status": status})


def plugin(node: str, *, ready: bool = True, ending: bool = False) -> Pod:
    meta = {"deletionTimestamp": "2026-11-24T00:00:00Z"} if ending else {}
    status = {"conditions": [condition("Ready", ready)]}
    return seen(Pod, objects.pod(f"dra-{node}", node=node, status=status, meta=meta))


def found(*claims: ResourceClaim, plugins: tuple[Pod, ...], **states: str) -> list[Notice]:
    return list(notices(claims, plugins=plugins, states=states))


def test_claims_of_a_node_at_rest_with_its_plugin_do_not_wait() -> None:
    for state in ("", "upgrade-required", "upgrade-done"):
        assert found(claim("one", "a"), plugins=(plugin("a"),), a=state) == []


def test_claims_wait_while_the_plugin_of_their_node_is_away() -> None:
    elsewhere = plugin("b")
    for away in ((), (plugin("a", ready=False),), (plugin("a", ending=True),)):
        (notice,) = found(claim("one", "a"), claim("two", "b"), plugins=(*away, elsewhere))
        assert notice.why == f"the plugin for claims of node a is not ready: {KEPT}"
        assert [(each.kind, each.namespace, each.name, each.uid) for each in notice.about()] == [
            ("ResourceClaim", "ml", "one", "uid-one"),
            ("Pod", "ml", "pod-of-one", "pod-one"),
        ]


def test_claims_wait_while_the_driver_of_their_node_changes() -> None:
    (notice,) = found(claim("one", "a"), plugins=(plugin("a"),), a="drain-required")
    why = "the driver of node a is being changed (drain-required)"
    assert notice.why == f"{why}: {KEPT}"


def test_claims_of_a_policy_that_switched_them_off_wait_wherever_they_are() -> None:
    found = notices(
        [claim("one", "a"), claim("other", "a", driver="dra.example")],
        plugins=[plugin("a")],
        states={},
        ends=True,
    )
    assert [(each.claim.metadata.name, each.why) for each in found] == [("one", SWITCHED_OFF)]


def test_claims_of_other_drivers_and_without_devices_are_none_of_ours() -> None:
    others = claim("other", "a", driver="dra.example")
    pending = claim_with("pending", {})
    assert found(others, pending, plugins=()) == []
