"""An effect that fails unforeseen is shown where it failed, tried again at leisure, and alone."""

from collections.abc import Callable

import pytest

from libs.contracts.waits import WaitCode
from libs.kube.requests import Request
from libs.testing.apiserver.faults import Fault, RefuseRequest
from tests.component.scheduler.world import NEW, USER, WAITING, World, in_world


def is_write_of_a(request: Request) -> bool:
    return request.method == "PATCH" and request.path == "/api/v1/nodes/a"


def is_eviction(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/eviction")


def is_rollout_status(request: Request) -> bool:
    return request.method == "PUT" and "/rollouts/" in request.path


@pytest.mark.parametrize(
    ("is_defect", "because"),
    [
        (is_write_of_a, "times (the node runs "),
        (is_eviction, "evictions fail: default/train-"),
    ],
)
@in_world
async def test_a_defect_in_an_effect_is_shown_on_its_node_and_backed_off(
    world: World, is_defect: Callable[[Request], bool], because: str
) -> None:
    scheduler, target = await world.complete_first_rollout("a")
    await world.start_job("train", "a")
    scheduler.transport.is_defect = is_defect
    await world.apply_policy(NEW)
    await world.sleep(60)
    wait = await world.wait_of("a")
    assert wait.code is WaitCode.REFUSED
    assert because in wait.detail
    assert "ArithmeticError: a defect of a test" in wait.detail
    assert scheduler.value(WAITING, code="refused") == 1
    assert 3 <= scheduler.transport.defects <= 15
    scheduler.transport.is_defect = lambda _request: False
    await world.wait_until_done("a", before=target)
    assert scheduler.service.failure is None


@in_world
async def test_a_defect_in_a_write_of_a_rollout_is_in_its_status(world: World) -> None:
    scheduler, target = await world.complete_first_rollout("a")
    scheduler.transport.is_defect = is_rollout_status
    await world.apply_policy(NEW)
    await world.sleep(60)
    status = await world.pool_status()
    assert "ArithmeticError: a defect of a test" in status.because
    assert 3 <= scheduler.transport.defects <= 15
    scheduler.transport.is_defect = lambda _request: False
    await world.wait_until_done("a", before=target)
    assert (await world.pool_status()).because == ""


@pytest.mark.parametrize("kind", ["Node", "Rollout"])
@in_world
async def test_a_write_that_always_conflicts_is_shown_and_backed_off(
    world: World, kind: str
) -> None:
    _, target = await world.complete_first_rollout("a")
    before = len(world.revisions(kind))
    verbs = ("apply", "update", "patch")
    world.server.faults.add(Fault(effect=RefuseRequest(409), verbs=verbs, kind=kind, user=USER))
    await world.apply_policy(NEW)
    await world.sleep(60)
    assert len(world.revisions(kind)) - before <= 20
    if kind == "Node":
        wait = await world.wait_of("a")
        assert wait.code is WaitCode.REFUSED
    else:
        assert "cannot be written" in (await world.pool_status()).because
    world.server.faults.clear()
    await world.wait_until_done("a", before=target)
