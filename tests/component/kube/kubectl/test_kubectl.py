"""kubectl's get, watch, describe, cordon, label, patch and apply, on both servers."""

import json

from tests.component.kube.kubectl.builders import config_map, definition, event, node, pod, widget
from tests.component.kube.kubectl.kubectl_process import Kubectl, next_row


async def test_nodes_are_shown_as_a_table(kubectl: Kubectl) -> None:
    a, b = kubectl.prefix + "a", kubectl.prefix + "b"
    await kubectl(
        "create -f -", stdin=[node(kubectl, "a"), node(kubectl, "b", spec={"unschedulable": True})]
    )
    header, first, second = await kubectl.rows(f"get nodes {kubectl.selector} -L pool")
    assert header == ["NAME", "STATUS", "ROLES", "AGE", "VERSION", "POOL"]
    assert first[:3] + first[4:] == [a, "Ready", "<none>", "v1.37.1", "a"]
    assert second[:2] == [b, "Ready,SchedulingDisabled"]
    assert await kubectl(f"get nodes {kubectl.selector} -o name") == f"node/{a}\nnode/{b}\n"
    cordoned = f"get nodes {kubectl.selector} --field-selector=spec.unschedulable=true"
    assert await kubectl(f"{cordoned} -o jsonpath={{.items[*].metadata.name}}") == b


async def test_a_watch_shows_each_change_of_a_label(kubectl: Kubectl) -> None:
    a = kubectl.prefix + "a"
    await kubectl("create -f -", stdin=[node(kubectl, "a")])
    async with kubectl.follow(f"get nodes {kubectl.selector} -w -L pool") as output:
        assert (await next_row(output))[0] == "NAME"
        assert (await next_row(output))[-1] == "a"
        await kubectl(f"label node {a} pool=moved --overwrite")
        while (row := await next_row(output))[-1] == "a":
            pass  # on a real server controllers write to it too
        assert row[-1] == "moved"


async def test_a_described_node_shows_its_labels_and_events(kubectl: Kubectl) -> None:
    a = kubectl.prefix + "a"
    await kubectl("create -f -", stdin=[node(kubectl, "a")])
    about = await kubectl.get_json(f"get node/{a}")
    drained = event(about, f"{a}.1", reason="Drained", message="all is gone")
    await kubectl("create --namespace=default -f -", stdin=[drained])
    text = " ".join((await kubectl(f"describe node {a}")).split())
    assert f"Name: {a} Roles: <none>" in text
    assert "Kernel Version: 6.8.0 OS Image: Ubuntu 24.04" in text
    assert "Unschedulable: false" in text
    assert "nvidia-gpu-operator all is gone" in text
    await kubectl(f"delete event {a}.1 --namespace=default")


async def test_pods_are_shown_as_a_table(kubectl: Kubectl) -> None:
    await kubectl("create -f -", stdin=[pod("p"), pod("q", nodeName="nowhere")])
    status = {
        "phase": "Running",
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
    change = json.dumps({"status": status})
    await kubectl("patch pod q --subresource=status --type=merge -p", change)
    header, p, q = await kubectl.rows("get pods")
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert p[:4] == ["p", "0/2", "Pending", "0"]
    assert q[:4] == ["q", "1/2", "CrashLoopBackOff", "4"]
    await kubectl("delete pods p q --grace-period=0 --force")


async def test_custom_resources_are_shown_by_their_columns(kubectl: Kubectl) -> None:
    name = definition(kubectl)["metadata"]["name"]
    await kubectl("create -f -", stdin=[definition(kubectl)])
    await kubectl(f"wait --for=condition=Established crd/{name} --timeout=120s")
    await kubectl("create -f -", stdin=[widget(kubectl, "w"), widget(kubectl, "v", size=5)])
    header, v, w = await kubectl.rows(f"get {kubectl.prefix}w -o wide")
    assert header == ["NAME", "AGE", "SIZE"]
    assert [v[0], v[2]] == ["v", "5"]
    assert [w[0], w[2]] == ["w", "3"]
    refused = await kubectl.fails("create -f -", stdin=[widget(kubectl, "x", size=0)])
    assert refused.startswith('The Widget "x" is invalid: spec.size: Invalid value: 0: spec.size')


async def test_a_node_is_cordoned_and_uncordoned(kubectl: Kubectl) -> None:
    a = kubectl.prefix + "a"
    await kubectl("create -f -", stdin=[node(kubectl, "a")])
    assert await kubectl(f"cordon {a}") == f"node/{a} cordoned\n"
    assert await kubectl(f"cordon {a}") == f"node/{a} already cordoned\n"
    assert (await kubectl.get_json(f"get node {a}"))["spec"]["unschedulable"] is True
    assert await kubectl(f"uncordon {a}") == f"node/{a} uncordoned\n"
    assert "unschedulable" not in (await kubectl.get_json(f"get node {a}"))["spec"]


async def test_an_object_is_patched_and_applied(kubectl: Kubectl) -> None:
    await kubectl("create -f -", stdin=[config_map("c", a="1")])
    assert await kubectl("patch cm c -p", '{"data":{"b":"2"}}') == "configmap/c patched\n"
    assert (
        await kubectl("patch cm c --type=merge -p", '{"data":{"a":null}}')
        == "configmap/c patched\n"
    )
    assert (await kubectl.get_json("get cm c"))["data"] == {"b": "2"}
    applied = await kubectl("apply --server-side -f -", stdin=config_map("d", a="1"))
    assert applied == "configmap/d serverside-applied\n"
    refused = await kubectl.fails("get cm none")
    assert refused == 'Error from server (NotFound): configmaps "none" not found'
