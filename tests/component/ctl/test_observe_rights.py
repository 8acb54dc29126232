"""What the command asks the API server for beside a GPU Operator: rights, and how many requests."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import yaml

from libs.ctl.failures import ExitCode
from libs.kube.requests import Request
from libs.testing.apiserver.replies import Reply
from tests.component.ctl.operator_fleet import OperatorFleet, make_fleet
from tests.component.ctl.world import PERSON

ROLE: Final = Path(__file__).parents[3] / "deploy/observe.yaml"
_ROOTS: Final = ("version", "api", "apis")
"""What every user may read: which groups and kinds there are."""


class Read(NamedTuple):
    group: str
    resource: str
    verb: str


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[OperatorFleet]:
    wait = {"podSelector": "app=train", "timeoutSeconds": 3600}
    async with make_fleet(tmp_path, waitForCompletion=wait) as made:
        await made.add_gpu_node("node-1", state="upgrade-done")
        await made.add_gpu_node("node-2", state="pod-deletion-required", revision="old")
        await made.finish()
        await made.add_job("job", "node-2")
        yield made


def requests_of(fleet: OperatorFleet, monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Return a list to which what the person requests from now on is added."""
    requests: list[Request] = []
    handle = fleet.server.handle

    async def record(request: Request, *, user: str) -> Reply:
        if user == PERSON:
            requests.append(request)
        return await handle(request, user=user)

    monkeypatch.setattr(fleet.server, "handle", record)
    return requests


def read_of(request: Request) -> Read | None:
    """Return what a request reads; None: what every user may read."""
    root, *parts = request.path.partition("?")[0].strip("/").split("/")
    assert root in _ROOTS, request.path
    group = "" if root == "api" else parts[0] if parts else ""
    rest = parts[1:] if root == "api" else parts[2:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    if not rest:
        return None
    assert request.method == "GET", request.path
    return Read(group, rest[0], "list" if len(rest) == 1 else "get")


def permitted() -> set[Read]:
    return {
        Read(group, resource, verb)
        for rule in yaml.safe_load(ROLE.read_text())["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def test_the_role_permits_what_the_command_reads_and_no_write(
    fleet: OperatorFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = requests_of(fleet, monkeypatch)
    verbs = (
        ("status",),
        ("status", "node-2"),
        ("why", "node-2"),
        ("plan", "--version", "590.48.01"),
        ("doctor",),
    )
    for arguments in verbs:
        assert (await fleet.run(*arguments)).code == ExitCode.DONE
    reads = {read for request in requests if (read := read_of(request)) is not None}
    assert reads <= permitted()
    assert {(each.group, each.resource) for each in reads} == {each[:2] for each in permitted()}


@pytest.mark.parametrize(
    ("arguments", "most"),
    [
        (("status",), 13),
        (("why", "node-2"), 18),
        (("plan", "--version", "590.48.01"), 14),
        (("doctor",), 14),
    ],
)
async def test_a_verb_makes_a_few_requests_however_many_nodes_there_are(
    fleet: OperatorFleet, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], most: int
) -> None:
    for number in range(3, 60):
        await fleet.add_gpu_node(f"node-{number}", state="upgrade-done")
    requests = requests_of(fleet, monkeypatch)
    assert (await fleet.run(*arguments)).code == ExitCode.DONE
    assert len(requests) <= most
