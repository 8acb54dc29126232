"""Sessions are closed when what they belong to is gone, and no others."""

import pytest

from libs.bus.sessions import Session
from libs.contracts.identities import Identity, Writer
from libs.kube.resources import NODES, SERVICE_ACCOUNTS
from libs.testing.apiserver.faults import Fault, Hang
from libs.testing.tokens import Bound
from tests.unit.signin.tokens import NAMESPACE
from tests.unit.signin.world import Agent, World, in_world

WITHIN = 60.0


async def two_agents(world: World) -> tuple[Agent, Agent]:
    """Return two agents with sessions on nodes of their own."""
    first = await world.agent("driver", "gpu-1")
    second = await world.agent("telemetry", "gpu-2")
    await world.settled()
    world.connections.open = [first.session(), second.session()]
    return first, second


@in_world
async def test_the_sessions_of_a_deleted_pod_are_closed(world: World) -> None:
    first, second = await two_agents(world)
    await world.clock.sleep(120)
    assert world.connections.closed == []
    await world.delete(first)
    await world.clock.sleep(WITHIN)
    assert world.connections.closed == [first.session()]
    assert world.connections.open == [second.session()]
    assert world.value("revocations_total") == 1


@pytest.mark.parametrize("again", [False, True])
@in_world
async def test_the_sessions_of_a_deleted_node_are_closed(world: World, again: bool) -> None:
    first, second = await two_agents(world)
    await world.kube.delete(NODES, first.node.name, uid=first.node.uid)
    if again:
        await world.node(first.node.name)
    await world.clock.sleep(WITHIN)
    assert world.connections.closed == [first.session()]
    assert world.connections.open == [second.session()]


@in_world
async def test_sessions_of_renewed_tokens_stay_open(world: World) -> None:
    """The pods may have survived their Node; their renewed tokens name the new one."""
    first, second = await two_agents(world)
    await world.kube.delete(NODES, first.node.name, uid=first.node.uid)
    node = await world.node(first.node.name)
    await world.settled()
    renewed = Agent(world, first.pod, node, first.account)
    assert (await world.sign_in(renewed.token())).error == ""
    world.connections.open.append(renewed.session())
    for _ in range(100):
        await world.clock.sleep(7)
        matches = world.connections.matches[-1]
        assert not matches(renewed.session())
        assert matches(first.session())
    assert world.connections.closed == [first.session()]
    assert world.connections.open == [second.session(), renewed.session()]


@in_world
async def test_sessions_of_renewed_tokens_stay_open_where_no_token_names_a_node(
    world: World,
) -> None:
    """Before Kubernetes 1.30. A deleted Node is then noticed, one of the same name is not."""
    first, second = await two_agents(world)
    old = Agent(world, first.pod, Bound("gpu-1", ""), first.account)
    other = Agent(world, second.pod, Bound("gpu-2", ""), second.account)
    world.connections.open = [old.session(), other.session()]
    await world.kube.delete(NODES, first.node.name, uid=first.node.uid)
    await world.clock.sleep(WITHIN)
    assert world.connections.closed == [old.session()]
    await world.node(first.node.name)
    await world.settled()
    world.connections.open.append(old.session())
    await world.clock.sleep(600)
    assert world.connections.open == [other.session(), old.session()]


@pytest.mark.parametrize("again", [False, True])
@in_world
async def test_the_sessions_of_a_deleted_account_are_closed(world: World, again: bool) -> None:
    first, second = await two_agents(world)
    account = first.account
    await world.kube.delete(SERVICE_ACCOUNTS, account.name, uid=account.uid, namespace=NAMESPACE)
    if again:
        account = await world.account("driver")
    await world.clock.sleep(WITHIN)
    assert world.connections.closed == [first.session()]
    assert world.connections.open == [second.session()]
    if again:
        renewed = Agent(world, first.pod, first.node, account)
        world.connections.open.append(renewed.session())
        await world.clock.sleep(600)
        assert world.connections.open == [second.session(), renewed.session()]


@in_world
async def test_people_whose_account_was_deleted(world: World) -> None:
    ctl = await world.account("ctl")
    await world.settled()
    person = Session(Identity(writer=Writer.CTL), f"token-1:{ctl.uid[:8]}::token-1")
    world.connections.open.append(person)
    await world.clock.sleep(600)
    assert person in world.connections.open
    await world.kube.delete(SERVICE_ACCOUNTS, ctl.name, uid=ctl.uid, namespace=NAMESPACE)
    await world.clock.sleep(WITHIN)
    assert world.connections.closed == [person]


@in_world
async def test_a_pod_that_was_deleted_while_no_process_was_running(world: World) -> None:
    first, second = await two_agents(world)
    uids = first.session().pod_uid.removeprefix(first.pod.uid)
    gone = Session(first.session().identity, f"deleted-long-ago{uids}")
    world.connections.open.append(gone)
    await world.clock.sleep(120)
    assert world.connections.closed == [gone]
    assert world.connections.open == [first.session(), second.session()]


@in_world
async def test_an_unknown_pod_is_not_gone_while_the_pods_are_not_proven_current(
    world: World,
) -> None:
    first, second = await two_agents(world)
    world.server.faults.add(Fault(effect=Hang(), verbs=("list", "watch"), user="us"))
    await world.server.restart()
    new = await world.agent("validator", "gpu-3")
    world.connections.open.append(new.session())
    await world.clock.sleep(1800)
    assert world.connections.closed == []
    world.server.faults.clear()
    await world.clock.sleep(900)
    assert world.connections.open == [first.session(), second.session(), new.session()]


@in_world
async def test_sessions_of_another_cluster_or_without_a_tag_stay(world: World) -> None:
    others = [
        Session(Identity(cluster="other", writer=Writer.DRIVER, node="gpu-1"), "p:a:n:t"),
        Session(Identity(writer=Writer.SCHEDULER), ""),
        Session(Identity(writer=Writer.SCHEDULER), "of-an-older-version"),
    ]
    world.connections.open = list(others)
    await world.clock.sleep(600)
    assert world.connections.open == others


@in_world
async def test_a_session_of_a_pod_on_another_node_is_closed(world: World) -> None:
    first, second = await two_agents(world)
    stolen = Agent(world, first.pod, second.node, first.account).session()
    world.connections.open.append(stolen)
    await world.clock.sleep(WITHIN)
    assert world.connections.closed == [stolen]
