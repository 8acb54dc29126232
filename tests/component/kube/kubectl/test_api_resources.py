"""What kubectl learns of the server itself, and how it says no: in one line, with a code."""

import pytest

from tests.component.kube.kubectl.builders import config_map, node, pod
from tests.component.kube.kubectl.kubectl_process import Kubectl

KINDS = """
configmaps cm v1 true ConfigMap
daemonsets ds apps/v1 true DaemonSet
nodes no v1 false Node
pods po v1 true Pod
poddisruptionbudgets pdb policy/v1 true PodDisruptionBudget
customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition
"""


async def test_what_there_is(me: Kubectl) -> None:
    said = await me("api-resources")
    rows = {tuple(row.split()) for row in said.splitlines()}
    assert {tuple(row.split()) for row in KINDS.strip().splitlines()} <= rows
    said = await me("api-resources --namespaced=false --verbs=list,watch -o name")
    assert {"nodes", "namespaces"} <= set(said.split())
    assert "pods" not in said.split()
    assert {"v1", "apps/v1", "policy/v1", "coordination.k8s.io/v1"} <= set(
        (await me("api-versions")).split()
    )
    version = await me.get_json("version")
    assert version["serverVersion"]["gitVersion"].startswith("v1.37.1")


@pytest.mark.parametrize("plane_or_none", ["simulated"], indirect=True)
async def test_what_the_simulated_server_does_not_do(me: Kubectl) -> None:
    await me("create -f -", stdin=pod("p"))
    unserved = "Error from server (NotImplemented): this simulated server does not serve pods/"
    refusals = {
        "explain pods": "error: GVK map[group: kind:Pod version:v1] not found in OpenAPI schema",
        "top nodes": "error: Metrics API not available",
        "auth can-i get pods": "Error from server (NotFound): the server could not find the",
        "create namespace other": "Error from server (UnsupportedMediaType): the body of the",
        "logs p -c main": f"{unserved}log",
    }
    for line, said in refusals.items():
        code, _, err = await me.run(line.split(), None)
        assert (code, err) == (1, f"{err.strip()}\n"), line
        assert err.startswith(said), line


async def test_bad_requests_end_in_one_line(me: Kubectl) -> None:
    a = me.prefix + "a"
    await me("create -f -", stdin=[node(me, "a"), config_map("c", a="1")])
    refusals = {
        "get nothing": 'error: the server doesn\'t have a resource type "nothing"',
        "get cm none": 'Error from server (NotFound): configmaps "none" not found',
        "delete cm none": 'Error from server (NotFound): configmaps "none" not found',
        "get nodes --field-selector=spec.none=1": (
            'Error from server (BadRequest): Unable to find "/v1, Resource=nodes" that match label '
            'selector "", field selector "spec.none=1": field label not supported: spec.none'
        ),
        "get nodes --selector=a==b==c": (
            'Error from server (BadRequest): Unable to find "/v1, Resource=nodes" that match label '
            "selector \"a==b==c\", field selector \"\": found '==', expected: ',' or 'end of "
            "string'"
        ),
    }
    for line, said in refusals.items():
        assert await me.fails(line) == said
    said = await me.fails(f"label node {a}", "tier=no good")
    assert said.startswith('error: invalid label value: "tier=no good"')
    said = await me.fails(f"patch node {a} -p", '{"metadata":{"labels":{"tier":"no good"}}}')
    assert said.startswith(f'The Node "{a}" is invalid: metadata.labels: Invalid value: "no good"')
    said = await me.fails("patch cm c -p", '{"metadata":{"resourceVersion":"1"},"data":{"a":"2"}}')
    assert said == (
        'Error from server (Conflict): Operation cannot be fulfilled on configmaps "c": the object '
        "has been modified; please apply your changes to the latest version and try again"
    )
    failing = '[{"op":"test","path":"/data/a","value":"2"}]'
    assert await me.fails("patch cm c --type=json -p", failing) == (
        "The request is invalid: the server rejected our request due to an error in our request"
    )
    said = await me.fails("create -f -", stdin=config_map("c"))
    assert said == (
        'Error from server (AlreadyExists): error when creating "STDIN": configmaps "c" already '
        "exists"
    )
    said = await me.fails("create -f -", stdin={**config_map("d"), "datum": 1})
    assert said == (
        'Error from server (BadRequest): error when creating "STDIN": ConfigMap in version "v1" '
        'cannot be handled as a ConfigMap: strict decoding error: unknown field "datum"'
    )
    assert (await me.get_json("get cm c"))["data"] == {"a": "1"}
