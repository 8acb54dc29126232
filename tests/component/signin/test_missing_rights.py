"""Sign-in with one right removed says which one it lacks, and goes on trying."""

import pytest

from libs.contracts.identities import Writer
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.apiserver.server import ApiServer
from tests.component.signin.world import World

REMEDY = "grant it in RBAC"


@pytest.mark.parametrize(
    ("kind", "path"),
    [("Pod", "/pods"), ("ServiceAccount", "/serviceaccounts"), ("Node", "/nodes")],
)
async def test_without_a_right_to_list(
    world: World, apiserver: ApiServer, kind: str, path: str
) -> None:
    apiserver.faults.add(Fault(effect=RefuseRequest(403), kind=kind, user="sign-in"))
    child = await world.start(until=REMEDY)
    (line, *_) = [each for each in child.log.splitlines() if REMEDY in each]
    assert path in line


async def test_without_the_right_to_review_tokens(world: World, apiserver: ApiServer) -> None:
    apiserver.faults.add(Fault(effect=RefuseRequest(403), kind="TokenReview", user="sign-in"))
    child = await world.start()
    pod = await world.pod(Writer.DISCOVERY, "node-1")
    async with world.connect(pod):
        await child.wait_for_log(REMEDY, within=60.0)
    (line, *_) = [each for each in child.log.splitlines() if REMEDY in each]
    assert "tokenreviews" in line
