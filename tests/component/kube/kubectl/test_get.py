"""`get` in every form, `get -w` and `describe`: what people see."""

import json

from tests.component.kube.kubectl.builders import (
    config_map,
    daemon_set,
    definition,
    event,
    node,
    pod,
    widget,
)
from tests.component.kube.kubectl.kubectl_process import Kubectl, next_row


async def test_nodes_as_tables(me: Kubectl) -> None:
    a, b = me.prefix + "a", me.prefix + "b"
    both = [node(me, "a"), node(me, "b", spec={"unschedulable": True})]
    said = await me("create -f -", stdin=both)
    assert said.splitlines() == [f"node/{a} created", f"node/{b} created"]

    header, first, second = await me.rows(f"get nodes {me.mine}")
    assert header == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert (first[:3], first[4]) == ([a, "Ready", "<none>"], "v1.37.1")
    assert second[:3] == [b, "Ready,SchedulingDisabled", "<none>"]

    header, first, second = await me.rows(f"get no {me.mine} -o wide -L pool,none")
    assert header[5:] == [
        "INTERNAL-IP", "EXTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME", "POOL",
        "NONE",
    ]  # fmt: skip
    assert first[5:] == [
        "10.0.0.1", "<none>", "Ubuntu 24.04", "6.8.0 (amd64)", "containerd://2.1", "a",
    ]  # fmt: skip
    assert second[10] == "b"

    (only,) = await me.rows(f"get nodes --no-headers {me.mine},pool!=a")
    assert only[0] == b
    (only,) = await me.rows(f"get nodes --no-headers {me.mine}", "-l", "pool in (a,z)")
    assert only[0] == a
    assert await me(f"get nodes {me.mine},pool=none") == ""


async def test_nodes_in_other_forms(me: Kubectl) -> None:
    a, b = me.prefix + "a", me.prefix + "b"
    await me("create -f -", stdin=[node(me, "a"), node(me, "b", spec={"unschedulable": True})])
    assert await me(f"get nodes {me.mine} -o name") == f"node/{a}\nnode/{b}\n"
    cordoned = f"get nodes {me.mine} --field-selector=spec.unschedulable=true"
    assert await me(f"{cordoned} -o jsonpath={{.items[*].metadata.name}}") == b
    columns = "custom-columns=N:.metadata.name,P:.metadata.labels.pool"
    rows = await me.rows(f"get nodes {me.mine} -o {columns}")
    assert rows == [["N", "P"], [a, "a"], [b, "b"]]
    whole = await me.get_json(f"get node {a}")
    assert (whole["kind"], whole["apiVersion"]) == ("Node", "v1")
    assert whole["status"]["nodeInfo"]["kernelVersion"] == "6.8.0"
    assert "managedFields" not in whole["metadata"]
    listed = await me.get_json(f"get nodes {me.mine} --show-managed-fields")
    assert [each["metadata"]["name"] for each in listed["items"]] == [a, b]
    managed = listed["items"][0]["metadata"]["managedFields"]
    assert "kubectl-create" in {entry["manager"] for entry in managed}
    assert f"\n  name: {a}\n" in await me(f"get node {a} -o yaml")
    names = await me(f"get nodes {a} {b} -o name --sort-by=.metadata.labels.pool")
    assert names == f"node/{a}\nnode/{b}\n"


async def test_pods_of_one_and_of_all_namespaces(me: Kubectl) -> None:
    await me("create -f -", stdin=[pod("p"), pod("q", nodeName="nowhere")])
    running = {
        "phase": "Running",
        "podIPs": [{"ip": "10.1.0.7"}],
        "podIP": "10.1.0.7",
        "containerStatuses": [
            {
                "name": name, "image": "i", "imageID": "", "ready": ready, "restartCount": restarts,
                "started": ready, "state": state,
            }
            for name, ready, restarts, state in (
                ("main", True, 0, {"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
                ("side", False, 4, {"waiting": {"reason": "CrashLoopBackOff"}}),
            )
        ],
    }  # fmt: skip
    patched = await me(
        "patch pod q --subresource=status --type=merge -p", json.dumps({"status": running})
    )
    assert patched == "pod/q patched\n"

    header, p, q = await me.rows("get pods -o wide")
    assert header == [
        "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE",
        "READINESS GATES",
    ]  # fmt: skip
    assert p[:4] + p[5:] == ["p", "0/2", "Pending", "0", *["<none>"] * 4]
    assert q[:4] + q[5:] == [
        "q", "1/2", "CrashLoopBackOff", "4", "10.1.0.7", "nowhere", "<none>", "<none>",
    ]  # fmt: skip

    (only,) = await me.rows("get po --no-headers --field-selector spec.nodeName=nowhere")
    assert only[0] == "q"
    header, found = await me.rows(
        "get pods -A -l app=p --field-selector", f"metadata.namespace={me.namespace}"
    )
    assert (header[:2], found[:2]) == (["NAMESPACE", "NAME"], [me.namespace, "p"])
    await me("delete pods p q --grace-period=0 --force")


async def test_other_kinds_as_tables(me: Kubectl) -> None:
    await me(
        "create -f -",
        stdin=[
            config_map("c", a="1", b="2"),
            daemon_set("ds"),
            {
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
                "spec": {"holderIdentity": "one"},
            },
            {
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "none"}}},
            },
        ],
    )  # fmt: skip
    assert (await me.rows("get cm c"))[1][:2] == ["c", "2"]
    assert (await me.rows("get lease"))[1][:2] == ["l", "one"]
    said = " ".join((await me("describe lease l")).split())
    assert "Kind: Lease" in said
    assert "Spec: Holder Identity: one" in said
    assert (await me.rows("get pdb"))[1][:4] == ["b", "1", "N/A", "0"]
    header, row = await me.rows("get ds -o wide")
    assert header == [
        "NAME", "DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE", "NODE SELECTOR", "AGE",
        "CONTAINERS", "IMAGES", "SELECTOR",
    ]  # fmt: skip
    assert row[:7] + row[8:] == ["ds", *["0"] * 5, "no=such", "main", "r/i:1", "app=ds"]
    assert (await me("get configmap/c daemonset.apps/ds -o name")).split() == [
        "configmap/c", "daemonset.apps/ds",
    ]  # fmt: skip
    assert (await me.rows(f"get ns {me.namespace}"))[1][:2] == [me.namespace, "Active"]


async def test_following_a_list(me: Kubectl) -> None:
    a = me.prefix + "a"
    await me("create -f -", stdin=[node(me, "a")])
    async with me.follow(f"get nodes {me.mine} -w -L pool") as output:
        assert (await next_row(output))[0] == "NAME"
        assert (await next_row(output))[-1] == "a"
        await me(f"label node {a} pool=moved --overwrite")
        while (row := await next_row(output))[-1] == "a":
            pass  # on a real server controllers write to it too
        assert row[-1] == "moved"
        await me("create -f -", stdin=[node(me, "b")])
        while (row := await next_row(output))[0] == a:
            pass
        assert row[0] == me.prefix + "b"
    labelled = config_map("c")
    labelled["metadata"]["labels"] = me.labels
    await me("create -f -", stdin=labelled)
    async with me.follow(f"get cm -w --output-watch-events {me.mine}") as output:
        assert await next_row(output) == ["EVENT", "NAME", "DATA", "AGE"]
        assert (await next_row(output))[:3] == ["ADDED", "c", "0"]
        await me("patch cm c --type=merge -p", '{"data":{"a":"1"}}')
        await me("delete cm c")
        assert (await next_row(output))[:3] == ["MODIFIED", "c", "1"]
        assert (await next_row(output))[:3] == ["DELETED", "c", "1"]


async def test_describing(me: Kubectl) -> None:
    a = me.prefix + "a"
    await me("create -f -", stdin=[node(me, "a"), pod("p"), daemon_set("ds")])
    things = {name: await me.get_json(f"get {name}") for name in (f"node/{a}", "pod/p", "ds/ds")}
    await me(
        "create --namespace=default -f -",
        stdin=[event(things[f"node/{a}"], f"{a}.1", reason="Drained", message="all is gone")],
    )
    await me("create -f -", stdin=[event(things["pod/p"], "p.1", reason="Waited", message="long")])

    said = " ".join((await me(f"describe node {a}")).split())
    assert f"Name: {a} Roles: <none>" in said
    assert "Kernel Version: 6.8.0 OS Image: Ubuntu 24.04" in said
    assert "Unschedulable: false" in said
    assert "nvidia-gpu-operator all is gone" in said  # and what controllers have to say
    said = " ".join((await me("describe pod p")).split())
    assert "Status: Pending" in said
    assert "side: Image: r/j:2" in said
    assert "nvidia-gpu-operator long" in said
    said = " ".join((await me("describe ds ds")).split())
    assert "Node-Selector: no=such" in said
    assert "Desired Number of Nodes Scheduled: 0" in said
    await me(f"delete event {a}.1 --namespace=default")

    header, row = await me.rows("get events --field-selector involvedObject.kind=Pod")
    assert header == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert row[1:] == ["Normal", "Waited", "pod/p", "long"]
    await me("delete pod p --grace-period=0 --force")


async def test_custom_resources(me: Kubectl) -> None:
    name = definition(me)["metadata"]["name"]
    await me("create -f -", stdin=[definition(me)])
    await me(f"wait --for=condition=Established crd/{name} --timeout=30s")
    header, row = await me.rows(f"get crd {name}")
    assert header == ["NAME", "SCOPE", "VERSIONS", "CREATED AT"]
    assert row[:3] == [name, "Namespaced", "v1(storage)"]

    await me("create -f -", stdin=[widget(me, "w"), widget(me, "v", size=5)])
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    resource = f"widgets.{me.prefix}a.test"
    await me(f"patch {resource} w --subresource=status --type=merge -p", json.dumps(ready))
    await me(f"wait --for=condition=Ready {resource}/w --timeout=30s")
    header, v, w = await me.rows(f"get {me.prefix}w -o wide")
    assert header == ["NAME", "READY", "AGE", "SIZE"]
    assert [v[0], v[2]] == ["v", "5"]
    assert [*w[:2], w[3]] == ["w", "True", "3"]
    said = " ".join((await me(f"describe {resource} w")).split())
    assert "Spec: Size: 3 Status: Conditions: Status: True Type: Ready" in said
    assert said.endswith("Events: <none>")
    refused = await me.fails("create -f -", stdin=[widget(me, "x", size=0)])
    assert refused.startswith('The Widget "x" is invalid: spec.size: Invalid value: 0: spec.size')
