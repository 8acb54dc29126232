"""What each account may do, as the real API server answers `kubectl auth can-i --list`.

The golden files are beside this one; what every account may do is in a file of its own. With
`UPDATE_GOLDEN=1` they are written.
"""

import os
import secrets
from pathlib import Path

import pytest

from libs.policy.installation import installation_objects
from tests.component.chart.conftest import Render
from tests.component.chart.rendered import Object, is_hook
from tests.system.nodes.kubectl import Kubectl

GOLDEN = Path(__file__).parent / "rights"
EVERYBODY = "everybody"
ACCOUNTS = sorted(
    each["metadata"]["name"]
    for each in installation_objects("any")
    if each["kind"] == "ServiceAccount"
)
OF_THE_CHART = ["sluice-nats", "sluice-setup", "sluice-test", "sluice-uninstall", "sluice-web"]
EVERYTHING = ("--set", "operator.cleanupCRD=true", "--set", "web.enabled=true")


class Accounts:
    """An installation's accounts on the API server."""

    def __init__(self, cluster: Kubectl, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    async def rights(self, account: str) -> list[str]:
        """Return the lines of `kubectl auth can-i --list` of an account."""
        user = f"system:serviceaccount:{self._namespace}:{account}"
        said = await self._cluster.run(
            *("auth", "can-i", "--list", "--as", user, "--namespace", self._namespace)
        )
        return [" ".join(line.split()) for line in said.splitlines()]

    async def own_rights(self, account: str) -> list[str]:
        """Return what an account may do beyond what every account may."""
        common = set(await self.rights("nobody"))
        return [line for line in await self.rights(account) if line not in common]


@pytest.fixture
async def accounts(cluster: Kubectl, render: Render) -> Accounts:
    """Install accounts, roles and bindings, hooks too, in a namespace of this test."""
    namespace = f"rights-{secrets.token_hex(4)}"
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    objects = render(*EVERYTHING, namespace=namespace)
    kinds = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    await cluster.apply(*(each for each in objects if each["kind"] in kinds))
    return Accounts(cluster, namespace)


def compare(name: str, lines: list[str]) -> None:
    file = GOLDEN / f"{name}.txt"
    text = "".join(f"{line}\n" for line in lines)
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert file.read_text() == text


async def test_rights_are_as_recorded(accounts: Accounts) -> None:
    """Without rights of their own: those of agents, driver containers, NATS and people's tokens."""
    compare(EVERYBODY, await accounts.rights("nobody"))
    without: list[str] = []
    for name in (*ACCOUNTS, *OF_THE_CHART, "sluice-uninstall-kinds"):
        rights = await accounts.own_rights(name)
        if rights:
            compare(name, rights)
        else:
            without.append(name)
    assert sorted(without) == sorted(
        f"sluice-{name}"
        for name in (
            *("ctl", "discovery", "driver", "driver-container", "nats"),
            *("plugin", "telemetry", "validator"),
        )
    )
    recorded = {file.stem for file in GOLDEN.glob("*.txt")} - {EVERYBODY}
    assert recorded == {*ACCOUNTS, *OF_THE_CHART, "sluice-uninstall-kinds"} - {*without}


def test_no_right_is_a_wildcard(render: Render) -> None:
    objects = render(*EVERYTHING)
    roles: list[Object] = [each for each in objects if each["kind"] in ("Role", "ClusterRole")]
    assert any(is_hook(each) for each in roles)
    assert [each["metadata"]["name"] for each in roles if "*" in str(each["rules"])] == []
