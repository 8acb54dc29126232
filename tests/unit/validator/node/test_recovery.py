"""While NATS is away, the validator proves the driver of this boot by itself."""

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.reports import Evidence
from libs.host import gate
from libs.host.cuda.port import CudaProblem
from libs.host.gate import GateAnswer, GateRequest
from services.validator.node.recovery import PAUSE, PLUGIN_INTERVAL, SLOT_WAIT
from services.validator.node.validation import RETRY_INTERVAL, TRIES
from tests.builders.fake_machine import BOOT
from tests.unit.validator.node.test_agent import (
    POD,
    REQUEST,
    World,
    break_cuda,
    end_container,
    files,
    in_world,
    install_another,
    unload,
)
from tests.unit.validator.node.test_plugin_step import names, use

SOON = SLOT_WAIT + 3 * RETRY_INTERVAL
PROVEN = {"driver-ready", "cuda-ready"}


def admit(world: World) -> None:
    """Let the driver pod be admitted in this boot."""
    tree = world.machine.tree
    request = GateRequest(pod_uid=POD, label="d-2", install_digest="i-2", started=1.0)
    gate.put_request(tree, request)
    gate.put_answer(tree, GateAnswer(pod_uid=POD, label="d-2", at=2.0))


@in_world
async def test_the_chain_starts_by_itself_and_its_evidence_is_reported_later(world: World) -> None:
    kubelet = use(world)
    admit(world)
    world.server.stop()
    async with world.agent():
        await world.clock.sleep(SLOT_WAIT - 1)
        assert files(world) == {}
        await world.clock.sleep(SOON)
        assert files(world).keys() == PROVEN
        assert world.driver.held == 0
        kubelet.answer = names("GPU-0", "GPU-1")
        await world.clock.sleep(PLUGIN_INTERVAL + 1)
        assert files(world).keys() == {*PROVEN, "plugin-ready"}
        questions = kubelet.questions
        await world.clock.sleep(300)
        assert kubelet.questions == questions
        assert world.reported(Evidence) == []
        world.server.start()
        await world.until(lambda: world.reported(Evidence))
    (evidence,) = world.reported(Evidence)
    assert (evidence.passed, evidence.label, evidence.boot_id) == (True, "d-2", BOOT)
    assert (evidence.driver_pod_uid, evidence.driver_digest) == (POD, "i-2")
    assert (evidence.epoch, evidence.token, evidence.op) == (0, 0, 0)


@in_world
async def test_a_restarted_validator_does_not_prove_it_again(world: World) -> None:
    admit(world)
    world.server.stop()
    for _ in range(2):
        async with world.agent():
            await world.clock.sleep(SOON)
            assert files(world).keys() == PROVEN
    world.server.start()
    async with world.agent():
        await world.clock.sleep(60)
    assert world.reported(Evidence) == []


@in_world
async def test_a_driver_on_the_host_is_proven_too(world: World) -> None:
    end_container(world)
    world.server.stop()
    async with world.agent():
        await world.clock.sleep(SOON)
        assert files(world)["driver-ready"].startswith("IS_HOST_DRIVER=true\n")


@in_world
async def test_nothing_is_proven_while_no_admitted_driver_runs(world: World) -> None:
    gate.put_request(world.machine.tree, GateRequest(pod_uid=POD, label="d-2", started=1.0))
    world.server.stop()
    async with world.agent():
        await world.clock.sleep(300)
        assert files(world) == {}
        admit(world)
        unload(world)
        await world.clock.sleep(300)
        assert files(world) == {}


@in_world
async def test_another_installation_than_the_admitted_one_is_not_proven(world: World) -> None:
    admit(world)
    install_another(world)
    world.server.stop()
    async with world.agent():
        await world.clock.sleep(SLOT_WAIT + (TRIES + 1) * RETRY_INTERVAL)
        assert files(world) == {}
        world.server.start()
        await world.until(lambda: world.reported(Evidence))
    assert not world.reported(Evidence)[0].passed


@in_world
async def test_a_validation_that_failed_is_tried_again(world: World) -> None:
    admit(world)
    break_cuda(CudaProblem.NOT_READY, "GPU-0")(world)
    world.server.stop()
    async with world.agent():
        await world.clock.sleep(SLOT_WAIT + (TRIES + 1) * RETRY_INTERVAL)
        assert files(world).keys() == {"driver-ready"}
        world.machine.cuda.problems.clear()
        await world.clock.sleep(PAUSE + RETRY_INTERVAL)
        assert files(world).keys() == PROVEN


@in_world
async def test_a_quiesced_validator_opens_no_device(world: World) -> None:
    admit(world)
    async with world.agent():
        await world.carry_out(Quiesce())
    world.server.stop()
    async with world.agent():
        await world.clock.sleep(300)
        assert files(world) == {}


@in_world
async def test_a_command_ends_the_own_validation(world: World) -> None:
    admit(world)
    break_cuda(CudaProblem.NOT_READY, "GPU-0")(world)
    await world.send_command(Idle())
    world.server.stop()
    async with world.agent():
        await world.clock.sleep(SLOT_WAIT + RETRY_INTERVAL)
        world.server.start()
        order = await world.send_command(REQUEST)
        result = await world.wait_for_result(order)
        assert result.code == "cuda"
    assert {each.order for each in world.reported(Evidence)} == {order}
