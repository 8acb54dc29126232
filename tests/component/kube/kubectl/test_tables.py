"""Our tables are the real server's, cell for cell, for the same objects at the same time."""

import time
from typing import Any

import msgspec

from libs.kube.http import HttpTransport
from libs.kube.transport import Request
from libs.testing.apiserver.kinds.kind import CustomColumn, ResourceKind, ResourceKinds
from libs.testing.apiserver.printers import tables
from libs.testing.apiserver.schemas.schema import Schema
from tests.component.kube.kubectl.builders import JsonObject, definition, widget
from tests.component.kube.kubectl.kubectl_process import Kubectl
from tests.component.kube.kubectl.table_objects import ago, other_kinds, pods

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def test_of_the_servers_own_kinds(me: Kubectl, wire: HttpTransport) -> None:
    await me("create -f -", stdin=[*other_kinds(me), *pods()])
    await me("replace --subresource=status -f -", stdin=pods())
    kinds = [kind for kind in ResourceKinds() if "list" in kind.verbs]
    rows = {kind.plural: await compared(wire, kind, _place(me, kind)) for kind in kinds}
    assert rows["pods"] >= len(pods())
    made = {thing["kind"] for thing in other_kinds(me)}
    assert {kind.plural for kind in kinds if kind.kind in made and not rows[kind.plural]} == set()
    await me("delete pods --all --grace-period=0 --force")
    await me(f"delete runtimeclasses {me.mine}")


COLUMNS = [
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
    ("Missing", "string", ".spec.missing"),
    ("Number", "string", ".spec.n"),
    ("Fraction", "string", ".spec.f"),
    ("Flag", "string", ".spec.b"),
    ("Null", "string", ".spec.nul"),
    ("List", "string", ".spec.list"),
    ("Last", "string", ".spec.list[-1]"),
    ("Beyond", "string", ".spec.list[9]"),
    ("Each", "string", ".spec.list[*]"),
    ("Map", "string", ".spec.map"),
    ("Label", "string", ".metadata.labels.a\\.b/c"),
    ("Quoted", "string", ".metadata.labels['a\\.b/c']"),
    ("Above", "string", ".spec.items[?(@.w>2)].name"),
    ("Having", "string", ".spec.items[?(@.x)].name"),
    ("N", "integer", ".spec.n"),
    ("NofF", "integer", ".spec.f"),
    ("NofS", "integer", ".spec.when"),
    ("NofB", "integer", ".spec.b"),
    ("F", "number", ".spec.f"),
    ("FofN", "number", ".spec.n"),
    ("B", "boolean", ".spec.b"),
    ("When", "date", ".spec.when"),
    ("Never", "date", ".spec.bad"),
]


async def test_of_a_custom_kind(me: Kubectl, wire: HttpTransport) -> None:
    crd = definition(me)
    (version,) = crd["spec"]["versions"]
    version["schema"] = {
        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    }
    version["additionalPrinterColumns"] = [
        {"name": name, "type": kind, "jsonPath": path, "priority": len(name) % 2}
        for name, kind, path in COLUMNS
    ]
    thing = widget(
        me, "w", n=7, f=1.5, b=True, nul=None, list=["p", "q"], map={"z": 1, "a": ["x<y"]},
        when=ago(90 * 86_400), bad="yesterday",
        items=[{"name": "i", "w": 1}, {"name": "j", "w": 3, "x": 0}, {"name": "k", "w": 4}],
    )  # fmt: skip
    thing["metadata"]["labels"] = {"a.b/c": "label"}
    thing["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    await me("create -f -", stdin=crd)
    await me(f"wait --for=condition=Established crd/{crd['metadata']['name']} --timeout=30s")
    await me("create -f -", stdin=thing)
    await me("replace --subresource=status -f -", stdin=thing)
    columns = tuple(
        CustomColumn(name=each["name"], type=each["type"], json_path=each["jsonPath"],
               priority=each["priority"])
        for each in version["additionalPrinterColumns"]
    )  # fmt: skip
    group = crd["spec"]["group"]
    widgets = msgspec.structs.replace(
        next(iter(ResourceKinds())), group=group, plural="widgets", columns=columns,
        schema=Schema(root={}, rules={}),
    )  # fmt: skip
    assert await compared(wire, widgets, f"/apis/{group}/v1/widgets") == 1


async def compared(wire: HttpTransport, kind: ResourceKind, path: str) -> int:
    """How many rows the server's table has, once it is known to be ours."""
    before, theirs, after = await timed(wire, path)
    while after - before > 1:  # an age might have passed through more than two words
        before, theirs, after = await timed(wire, path)
    objects = [row["object"] for row in theirs["rows"] or ()]
    ours = [
        tables.table(kind, objects, now=now, include="Object", metadata=theirs["metadata"])
        for now in (before, after)
    ]
    assert [_without(column, "description") for column in theirs["columnDefinitions"]] == [
        _without(column, "description") for column in ours[0]["columnDefinitions"]
    ]
    for row, *candidates in zip(
        theirs["rows"] or (), ours[0]["rows"], ours[1]["rows"], strict=True
    ):
        assert _without(row, "cells") == _without(candidates[0], "cells")
        expected = zip(*(each["cells"] for each in candidates), strict=True)
        for cell, words in zip(row["cells"], expected, strict=True):
            assert cell in words, (kind.plural, row["cells"])
    return len(objects)


async def timed(wire: HttpTransport, path: str) -> tuple[float, Any, float]:
    """The server's table, and between which times it was made."""
    request = Request(
        method="GET", path=path, query={"includeObject": "Object"}, headers={"accept": TABLE}
    )
    before = time.time()
    async with wire.open(request) as answer:
        body = await answer.body()
        assert answer.status == 200, body
    return before, msgspec.json.decode(body), time.time()


def _place(me: Kubectl, kind: ResourceKind) -> str:
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    if kind.namespaced:
        root = f"{root}/namespaces/{me.namespace}"
    return f"{root}/{kind.plural}"


def _without(entry: JsonObject, field: str) -> JsonObject:
    return {key: value for key, value in entry.items() if key != field}
