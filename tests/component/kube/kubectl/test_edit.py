"""What people change: each command's words, and the object that is stored after it."""

import asyncio
import json

from tests.component.kube.kubectl.builders import config_map, daemon_set, node, pod
from tests.component.kube.kubectl.kubectl_process import Kubectl


async def test_labels_and_annotations(me: Kubectl) -> None:
    a = me.prefix + "a"
    await me("create -f -", stdin=[node(me, "a")])
    assert await me(f"label node {a} tier=gold") == f"node/{a} labeled\n"
    assert await me(f"label node {a} tier=gold") == f"node/{a} not labeled\n"
    assert await me.fails(f"label node {a} tier=lead") == (
        "error: 'tier' already has a value (gold), and --overwrite is false"
    )
    assert await me(f"label node {me.mine} tier=lead --overwrite") == f"node/{a} labeled\n"
    assert await me(f"label node {a} pool-") == f"node/{a} unlabeled\n"
    assert await me(f"annotate node {a} a.test/why=because") == f"node/{a} annotated\n"

    metadata = (await me.get_json(f"get node {a} --show-managed-fields"))["metadata"]
    assert metadata["labels"] == {**me.labels, "tier": "lead"}
    assert metadata["annotations"]["a.test/why"] == "because"
    managers = {entry["manager"]: entry["fieldsV1"] for entry in metadata["managedFields"]}
    assert managers["kubectl-label"]["f:metadata"]["f:labels"] == {"f:tier": {}}
    assert "f:a.test/why" in managers["kubectl-annotate"]["f:metadata"]["f:annotations"]


PATCHES: list[tuple[str, object, dict[str, str]]] = [
    ("merge", {"data": {"a": None, "b": "2"}}, {"b": "2"}),
    ("strategic", {"data": {"a": None, "b": "2"}}, {"b": "2"}),
    (
        "json",
        [
            {"op": "test", "path": "/data/a", "value": "1"},
            {"op": "move", "from": "/data/a", "path": "/data/b"},
        ],
        {"b": "1"},
    ),
]


async def test_patches(me: Kubectl) -> None:
    await me("create -f -", stdin=[config_map(kind, a="1") for kind, _, _ in PATCHES])
    for kind, change, left in PATCHES:
        patch = f"patch cm {kind} --type={kind} -p"
        assert await me(patch, json.dumps(change)) == f"configmap/{kind} patched\n"
        assert (await me.get_json(f"get cm {kind}"))["data"] == left
        said = await me(patch, json.dumps([] if kind == "json" else {}))
        assert said == f"configmap/{kind} patched (no change)\n"


async def test_a_strategic_patch_knows_lists_by_their_keys(me: Kubectl) -> None:
    await me("create -f -", stdin=[pod("p")])
    change = {"spec": {"containers": [{"name": "side", "image": "r/j:3"}]}}
    await me("patch pod p -p", json.dumps(change))
    containers = (await me.get_json("get pod p"))["spec"]["containers"]
    assert [each["image"] for each in containers] == ["r/i:1", "r/j:3"]
    await me("delete pod p --now --wait=false")


async def test_the_status_is_patched_by_its_own_way_only(me: Kubectl) -> None:
    await me("create -f -", stdin=[pod("p")])
    change = json.dumps({"status": {"phase": "Running"}})
    assert await me("patch pod p -p", change) == "pod/p patched (no change)\n"
    assert (await me.get_json("get pod p"))["status"]["phase"] == "Pending"
    assert await me("patch pod p --subresource=status -p", change) == "pod/p patched\n"
    assert await me("get pod p --subresource=status -o jsonpath={.status.phase}") == "Running"
    await me("delete pod p --grace-period=0 --force")


async def test_cordons(me: Kubectl) -> None:
    a = me.prefix + "a"
    await me("create -f -", stdin=[node(me, "a")])
    assert await me(f"cordon {a}") == f"node/{a} cordoned\n"
    assert await me(f"cordon {a}") == f"node/{a} already cordoned\n"
    assert (await me.rows(f"get node {a}"))[1][1] == "Ready,SchedulingDisabled"
    assert await me(f"uncordon {a}") == f"node/{a} uncordoned\n"
    assert await me(f"uncordon {a}") == f"node/{a} already uncordoned\n"
    assert "unschedulable" not in (await me.get_json(f"get node {a}")).get("spec", {})


async def test_drains(me: Kubectl) -> None:
    a = me.prefix + "a"
    # Nobody would end a pod with grace on a node that has no kubelet.
    there = pod("p", nodeName=a, terminationGracePeriodSeconds=0)
    await me("create -f -", stdin=[node(me, "a"), there])
    code, out, err = await me.run(["drain", a], None)
    assert (code, out) == (1, f"node/{a} cordoned\n")
    assert "cannot delete Pods that declare no controller (use --force to override)" in err
    said = await me(f"drain {a} --force")
    assert said.splitlines() == [
        f"node/{a} already cordoned",
        f"evicting pod {me.namespace}/p",
        "pod/p evicted",
        f"node/{a} drained",
    ]
    assert await me("get pods") == ""


async def test_deletion_with_and_without_waiting(me: Kubectl) -> None:
    held = config_map("held")
    held["metadata"]["finalizers"] = ["a.test/held"]
    await me("create -f -", stdin=[held, config_map("c"), config_map("d")])
    assert await me("delete cm c") == f'configmap "c" deleted from {me.namespace} namespace\n'
    said = await me("delete cm held d --wait=false")
    assert said.splitlines() == [
        f'configmap "{name}" deleted from {me.namespace} namespace' for name in ("held", "d")
    ]
    assert "deletionTimestamp" in (await me.get_json("get cm held"))["metadata"]
    async with me.follow("delete cm held") as output:
        assert (await output.readline()).startswith(b'configmap "held" deleted')
        await me("patch cm held --type=json -p", '[{"op":"remove","path":"/metadata/finalizers"}]')
        assert await output.read() == b""
    assert await me.fails("get cm held") == (
        'Error from server (NotFound): configmaps "held" not found'
    )
    assert await me("delete cm held --ignore-not-found") == ""
    await me("create -f -", stdin=[config_map("e"), config_map("f")])
    await me("delete configmap/e configmap/f")
    assert not {"configmap/e", "configmap/f"} & set((await me("get cm -o name")).split())


async def test_server_side_apply(me: Kubectl) -> None:
    apply = "apply --server-side --field-manager={} -f -"
    said = await me(apply.format("one"), stdin=[config_map("c", a="1", b="1")])
    assert said == "configmap/c serverside-applied\n"
    said = await me(apply.format("two"), stdin=[config_map("c", c="2")])
    assert (await me.get_json("get cm c"))["data"] == {"a": "1", "b": "1", "c": "2"}
    code, out, err = await me.run([*apply.format("two").split()], config_map("c", a="2", c="2"))
    assert (code, out) == (1, "")
    assert 'Apply failed with 1 conflict: conflict with "one": .data.a' in err
    said = await me(f"{apply.format('two')} --force-conflicts", stdin=config_map("c", a="2"))
    assert said == "configmap/c serverside-applied\n"
    assert (await me.get_json("get cm c"))["data"] == {"a": "2", "b": "1"}


async def test_waiting(me: Kubectl) -> None:
    a = me.prefix + "a"
    unready = node(me, "a")
    unready["status"]["conditions"][0]["status"] = "False"
    await me("create -f -", stdin=[unready, config_map("c"), daemon_set("ds")])
    assert await me.fails(f"wait --for=condition=Ready node/{a} --timeout=0s") == (
        f"error: condition not met for nodes/{a}"
    )
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    async with me.follow(f"wait --for=condition=Ready node/{a} --timeout=60s") as output:
        await me(f"patch node {a} --subresource=status -p", json.dumps(ready))
        assert await output.read() == f"node/{a} condition met\n".encode()
    # Which of the two comes first decides only whether the one that waits has anything to say.
    await asyncio.gather(me("wait --for=delete cm/c --timeout=60s"), me("delete cm c"))
    assert "configmap/c\n" not in await me("get cm -o name")

    seen = {"observedGeneration": 1, "desiredNumberScheduled": 0, "currentNumberScheduled": 0,
            "numberMisscheduled": 0, "numberReady": 0}  # fmt: skip
    await me("patch ds ds --subresource=status --type=merge -p", json.dumps({"status": seen}))
    said = await me("rollout status ds/ds --timeout=60s")
    assert said == 'daemon set "ds" successfully rolled out\n'
