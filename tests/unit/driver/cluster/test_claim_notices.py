"""Which claims wait, and why."""

from typing import Any

import msgspec

from libs.kube.views import Pod
from libs.kube.views.claims import ResourceClaim
from services.driver.cluster.claim_notices import (
    SWITCHED_OFF,
    Notice,
    notices,
)

KEPT = "pods that have started keep their GPUs, others wait"


def claim(name: str, node: str, *, driver: str = "gpu.nvidia.com") -> ResourceClaim:
    results = [{"driver": driver, "pool": node, "device": "gpu-0", "request": "gpu"}]
    consumers = [
        {"resource": "pods", "name": f"pod-of-{name}", "uid": f"pod-{name}"},
        {"apiGroup": "x.example", "resource": "others", "name": "o", "uid": "o"},
    ]
    return decoded(
        ResourceClaim,
        name,
        status={"allocation": {"devices": {"results": results}}, "reservedFor": consumers},
    )


def plugin(node: str, *, ready: bool = True, ending: bool = False) -> Pod:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    more = {"deletionTimestamp": "2026-11-24T00:00:00Z"} if ending else {}
    return decoded(
        Pod,
        f"dra-{node}",
        metadata=more,
        spec={"nodeName": node, "containers": []},
        status={"conditions": conditions},
    )


def decoded(view: Any, name: str, *, metadata: Any = None, **parts: Any) -> Any:
    named = {"name": name, "namespace": "ml", "uid": f"uid-{name}", **(metadata or {})}
    return msgspec.json.decode(msgspec.json.encode({"metadata": named, **parts}), type=view)


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
    pending = decoded(ResourceClaim, "pending", status={})
    assert found(others, pending, plugins=()) == []
