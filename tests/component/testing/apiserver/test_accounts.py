"""As whom pods speak: what admission gives them."""

from typing import Any

import pytest

from tests.component.testing.apiserver.world import PODS, ApiServerWorld, JsonObject, run_world

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def pod(spec: dict[str, Any], account: dict[str, Any] | None = None) -> JsonObject:
    """As it is after its creation."""

    async def main(town: ApiServerWorld) -> JsonObject:
        if account is not None:
            assert (await town.ask("POST", ACCOUNTS, account))[0] == 201
        containers = [{"name": "c", "image": "x"}]
        body = {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}
        code, made = await town.ask("POST", PODS, body)
        assert code == 201
        return made

    return run_world(main)


def test_a_pod_that_names_nobody_speaks_as_the_default_account_and_bears_its_token() -> None:
    made = pod({"initContainers": [{"name": "i", "image": "x"}]})
    spec = made["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert len(volume["name"]) == len("kube-api-access-") + 5
    assert [list(source) for source in volume["projected"]["sources"]] == [
        ["serviceAccountToken"],
        ["configMap"],
        ["downwardAPI"],
    ]
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["volumeMounts"] == [
            {"name": volume["name"], "readOnly": True, "mountPath": MOUNT}
        ]
    owned = str(made["metadata"]["managedFields"])
    assert "serviceAccount" not in owned
    assert "volumes" not in owned


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"serviceAccountName": "driver"}, "driver"),
        ({"serviceAccount": "driver"}, "driver"),
        ({"automountServiceAccountToken": False}, "default"),
    ],
)
def test_an_account_is_known_by_both_of_its_names(spec: dict[str, Any], name: str) -> None:
    made = pod(spec)["spec"]
    assert (made["serviceAccountName"], made["serviceAccount"]) == (name, name)
    assert ("volumes" in made) is ("automountServiceAccountToken" not in spec)


@pytest.mark.parametrize(("wanted", "mounted"), [(None, False), (True, True), (False, False)])
def test_the_pod_decides_before_its_account_whether_a_token_is_mounted(
    wanted: bool | None, mounted: bool
) -> None:
    account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
    spec = {} if wanted is None else {"automountServiceAccountToken": wanted}
    assert ("volumes" in pod(spec, account)["spec"]) is mounted


def test_a_container_that_brings_its_own_token_keeps_it() -> None:
    mine = {"name": "mine", "mountPath": MOUNT}
    container = {"name": "c", "image": "x", "volumeMounts": [mine]}
    volume = {"name": "mine", "emptyDir": {}}
    made = pod({"containers": [container], "volumes": [volume]})["spec"]
    assert made["containers"][0]["volumeMounts"] == [mine]
    assert [each["name"] for each in made["volumes"]] == ["mine"]
