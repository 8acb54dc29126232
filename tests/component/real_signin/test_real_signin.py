"""Sign-in with tokens of a real API server: who gets which rights, and when they end."""

import asyncio

import msgspec
import pytest

from libs.bus.permissions import permissions
from libs.contracts.identities import Identity, Writer
from libs.kube.errors import Forbidden
from libs.kube.resources import PODS
from libs.policy.installation import service_account_of
from tests.component.real_signin.world import RealWorld, until_allowed
from tests.component.signin.world import cut, metrics
from tests.security.identities import beat, slot, status
from tests.support import eventually

CTL_ACCOUNT = service_account_of(Writer.CTL)
SCHEDULER = Identity(writer=Writer.SCHEDULER)


async def test_each_signs_in_and_gets_the_rights_of_its_account(world: RealWorld) -> None:
    child = await world.start()
    node, other = await world.node(), await world.node("other")
    agent = await world.raw(await world.agent(node))
    service = await world.raw(await world.service(Writer.SCHEDULER))
    await world.allow_people()
    person = msgspec.structs.replace(
        await world.service(Writer.DRIVER_CLUSTER), identity=Identity(writer=Writer.CTL)
    )
    person.token_file.write_text(await until_allowed(world, CTL_ACCOUNT))
    somebody = await world.raw(person)

    beats = await service.listen(*permissions(SCHEDULER).subscribe)
    for client in (agent, somebody):
        await client.listen(*permissions(client.identity).subscribe)
    await agent.send(beat(agent.identity), b"alive")
    await eventually(lambda: [each.data for each in beats] == [b"alive"])
    await somebody.send(status(SCHEDULER))
    await service.send(slot(agent.identity))
    assert [each.violations for each in (agent, service, somebody)] == [[], [], []]

    neighbour = Identity(writer=Writer.DRIVER, node=other)
    for subject in (beat(neighbour), slot(agent.identity), status(SCHEDULER)):
        await agent.send(subject)
    for subject in (beat(agent.identity), slot(agent.identity)):
        await somebody.send(subject)
    await service.send(beat(agent.identity))
    assert [len(each.violations) for each in (agent, service, somebody)] == [3, 1, 2]
    assert (await metrics(child))['answers_total{result="granted"}'] == 3
    for client in (agent, service, somebody):
        await client.client.close()


async def test_sign_in_needs_no_right_that_it_lacks_and_has_no_other(world: RealWorld) -> None:
    child = await world.start()
    agent = await world.agent(await world.node())

    async def is_reviewed() -> bool:
        counted = await metrics(child)
        assert counted['reviews_total{outcome="failed"}'] == 0
        return counted['reviews_total{outcome="accepted"}'] == 1

    async with world.signin.connect(agent):
        await eventually(is_reviewed, within=180)
    assert "forbidden" not in child.log.lower()
    own, namespace = world.own, f"/api/v1/namespaces/{world.namespace}"
    account = f"{namespace}/serviceaccounts/{CTL_ACCOUNT}"
    for method, path in (
        ("GET", "/api/v1/secrets"),
        ("GET", f"{namespace}/secrets"),
        ("GET", f"{namespace}/configmaps"),
        ("GET", "/api/v1/pods"),
        ("DELETE", f"{namespace}/pods/{agent.name}"),
        ("DELETE", account),
        ("POST", f"{account}/token"),
    ):
        with pytest.raises(Forbidden):
            await own.request(method, path, body={} if method == "POST" else None)


async def test_people_get_tokens_for_the_bus_by_their_role_alone(world: RealWorld) -> None:
    await world.start()
    with pytest.raises(Forbidden):
        await world.request_as_person(CTL_ACCOUNT)
    await world.allow_people()
    await until_allowed(world, CTL_ACCOUNT)
    for writer in (Writer.SCHEDULER, Writer.DRIVER, Writer.SIGN_IN):
        with pytest.raises(Forbidden):
            await world.request_as_person(service_account_of(writer))


async def test_a_deleted_pod_is_cut_while_others_stay(world: RealWorld) -> None:
    child = await world.start()
    node = await world.node()
    agent, other = await world.agent(node), await world.agent(node, Writer.TELEMETRY)
    async with world.signin.connect(agent) as bus, world.signin.connect(other) as stays:
        changes: list[bool] = []
        stays.link.watch(changes.append)
        # A pod that ends still reports: its agent is cut when the object is gone.
        await world.kube.delete(PODS, agent.name, uid=agent.uid, namespace=world.namespace)
        async with world.signin.connect(agent):
            pass
        assert bus.link.is_up
        await world.signin.delete(agent)
        await cut(bus)
        await child.wait_for_log("was deleted: its tokens are void", within=180)
        await child.wait_for_log("sessions closed: what they belong to is gone", within=180)
        assert not bus.link.is_up
        assert changes == []
    # The DaemonSet's next pod on this node is the same identity.
    async with world.signin.connect(await world.agent(node)) as successor:
        assert successor.identity == agent.identity


async def test_a_node_that_was_created_again_needs_new_tokens(world: RealWorld) -> None:
    child = await world.start()
    node = await world.node()
    agent = await world.agent(node)
    async with world.signin.connect(agent) as bus:
        await world.replace_node(node)
        await cut(bus)
    await world.is_refused(agent, child, "node")
    await world.signin.renew(agent)
    async with world.signin.connect(agent, wait=120.0) as bus:
        assert bus.link.is_up


async def test_a_session_of_a_new_token_lasts(world: RealWorld) -> None:
    await world.start()
    node, other = await world.node(), await world.node("other")
    agent, deleted = await world.agent(node), await world.agent(other)
    async with world.signin.connect(agent) as bus:
        await world.replace_node(node)
        await cut(bus)
    await world.signin.renew(agent)
    async with world.signin.connect(agent, wait=120.0) as bus:
        changes: list[bool] = []
        bus.link.watch(changes.append)
        async with world.signin.connect(deleted) as elsewhere:
            await world.signin.delete(deleted)  # all sessions are compared again
            await cut(elsewhere)
        assert changes == []


async def test_an_account_that_was_created_again_needs_new_tokens(world: RealWorld) -> None:
    child = await world.start()
    agent = await world.agent(await world.node())
    account = service_account_of(Writer.DRIVER)
    async with world.signin.connect(agent) as bus:
        await world.replace_account(account)
        await cut(bus)
    # A token that the API server reviews while there is no account is refused for that.
    await world.is_refused(agent, child, "account", "review")


@pytest.mark.parametrize("account", ["sluice-driver", "default-of-tenant"])
async def test_a_tenants_pod_with_our_audience_is_refused(world: RealWorld, account: str) -> None:
    child = await world.start()
    node = await world.node()
    await world.is_refused(await world.tenant_pod(account, node), child, "account")
    assert f"{world.namespace}-tenant:{account}' is none of Sluice's accounts" in child.log
    assert (await metrics(child))['answers_total{result="granted"}'] == 0


async def test_the_accounts_that_do_not_sign_in_are_refused(world: RealWorld) -> None:
    child = await world.start()
    pod = await world.service(Writer.SCHEDULER)
    own = await world.signin.token(service_account_of(Writer.SIGN_IN))
    for_the_api_server = await world.signin.token("sluice-scheduler", audiences=[])
    unbound = await world.signin.token("sluice-scheduler")
    for token, cause in ((own, "account"), (for_the_api_server, "audience"), (unbound, "pod")):
        pod.token_file.write_text(token)
        await world.is_refused(pod, child, cause)


async def test_deletions_are_noticed_after_a_restart_of_the_api_server(world: RealWorld) -> None:
    child = await world.start()
    node = await world.node()
    agent, other = await world.agent(node), await world.agent(node, Writer.TELEMETRY)
    async with world.signin.connect(agent) as bus:
        restart = asyncio.create_task(world.plane.restart_apiserver(), name="restart")
        while not restart.done():
            async with world.signin.connect(other):
                pass
        await restart
        assert bus.link.is_up
        await world.signin.delete(agent)
        await cut(bus)
    await world.is_refused(agent, child, "pod", "review")
    assert (await metrics(child))["revocations_total"] >= 1
