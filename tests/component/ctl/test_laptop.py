"""The command where only a kubeconfig is: it finds the installation, and NATS's pods in it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import pytest
import yaml

from libs.contracts.events import LeaderEvent
from libs.contracts.queries import QueryVerb, StatusAnswer, StatusQuery
from libs.ctl.bus import Scheduler, open_bus
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.kube import portforward
from libs.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from libs.testing.apiserver.faults import Fault, Hang, RefuseRequest
from libs.testing.apiserver.portforward import ForwardCall
from tests.component.ctl.laptop import NAMESPACE, Laptop, make_laptop
from tests.component.ctl.web_world import PageScheduler
from tests.component.ctl.world import PERSON, POOL, T0, Ended, rollout_status

TOKEN = Fault(effect=RefuseRequest(403), kind="TokenRequest", user=PERSON)
AUTHORITY = Fault(effect=RefuseRequest(403), kind="ConfigMap", user=PERSON)
FORWARD = Fault(effect=RefuseRequest(403), verbs=("portforward",), user=PERSON)
PODS = Fault(effect=RefuseRequest(403), verbs=("get",), kind="Pod", user=PERSON)
ACCOUNTS = Fault(effect=RefuseRequest(403), verbs=("list",), kind="ServiceAccount", user=PERSON)
BIND = (
    f"an administrator binds you to the Role sluice-people there: `kubectl -n {NAMESPACE} create"
    " rolebinding sluice-people --role=sluice-people --user=YOU`"
)


@pytest.fixture
async def laptop(tmp_path: Path) -> AsyncIterator[Laptop]:
    async with make_laptop(tmp_path) as made:
        yield made


@pytest.fixture
async def installed(laptop: Laptop) -> Laptop:
    """One with an installation whose NATS runs in one pod, and a scheduler that answers."""
    await laptop.install()
    nats = await laptop.start_nats()
    await laptop.add_pod(to=nats)
    await PageScheduler(at=T0).answer(laptop.world)
    return laptop


def failed(ended: Ended, code: ExitCode) -> str:
    assert (ended.code, ended.err.count("\n")) == (code, 1), ended.err
    return ended.err


async def test_each_verb_finds_nats_by_the_kubeconfig_alone(installed: Laptop) -> None:
    world = installed.world
    await world.add_rollout(**rollout_status())
    await world.add_node("node-2", state="upgrade-required")
    await world.publish((LeaderEvent(holder="scheduler-1", epoch=1), "scheduler-1 leads", ""))
    status = await installed.run("status")
    assert "waits: from scheduler scheduler-1" in status.out
    assert "not from" not in status.out
    why = await installed.run("why", "node-2")
    assert "the budget allows 1 node at a time" in why.out
    assert (await installed.run("plan", POOL, "-o", "json")).json["plan"]["pool"] == POOL
    assert "scheduler-1 leads" in (await installed.run("events")).out
    doctor = await installed.run("doctor", "-o", "json")
    checks = {each["about"]: each for each in yaml.safe_load(doctor.out)}
    assert checks["NATS"]["found"] == (
        f"signed in at tls://sluice-nats.{NAMESPACE}.svc:4222, through the API server and the pod"
        " sluice-nats-0"
    )
    assert checks["scheduler"]["found"] == "scheduler-1 leads 1 pools"


async def test_a_given_token_and_ca_are_not_asked_for(installed: Laptop) -> None:
    world = installed.world
    token = world.folder / "given"
    token.write_text(await _token(installed))
    for fault in (TOKEN, AUTHORITY):
        world.server.faults.add(fault)
    ca = world.folder / "nats-ca.pem"
    ended = await installed.run("plan", POOL, "--token-file", str(token), "--ca-file", str(ca))
    assert (ended.code, ended.err) == (ExitCode.DONE, "")


async def _token(laptop: Laptop) -> str:
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/sluice-ctl/token"
    spec = {"audiences": ["sluice"], "expirationSeconds": 3600}
    answer = await laptop.world.kube.request("POST", path, body={"spec": spec})
    return yaml.safe_load(answer)["status"]["token"]


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        ((TOKEN,), "request a token for sluice-ctl"),
        ((AUTHORITY,), "read the ConfigMap sluice-nats-ca"),
        ((FORWARD,), "reach NATS's pods by a port-forward"),
        ((PODS,), "reach NATS's pods by a port-forward"),
        (
            (TOKEN, AUTHORITY, FORWARD),
            (
                "request a token for sluice-ctl, nor reach NATS's pods by a port-forward, nor read"
                " the ConfigMap sluice-nats-ca"
            ),
        ),
    ],
)
async def test_rights_that_are_missing_are_named_with_the_command_that_grants_them(
    installed: Laptop, missing: tuple[Fault, ...], what: str
) -> None:
    for fault in missing:
        installed.world.server.faults.add(fault)
    said = failed(await installed.run("plan", POOL), ExitCode.NOT_ALLOWED)
    assert f"NATS: you may not {what} in namespace {NAMESPACE}; {BIND}" in said
    assert ("of an earlier version" in said) is (len(missing) < 3)


async def test_who_may_not_list_accounts_finds_it_in_a_usual_namespace(installed: Laptop) -> None:
    installed.world.server.faults.add(ACCOUNTS)
    assert (await installed.run("plan", POOL)).code == ExitCode.DONE


async def test_who_may_not_list_accounts_finds_it_in_the_namespace_of_the_context(
    laptop: Laptop,
) -> None:
    laptop.world.server.faults.add(ACCOUNTS)
    await laptop.install("gpus")
    laptop.use_context_of("gpus")
    said = failed(await laptop.run("plan", POOL), ExitCode.NOT_FOUND)
    assert "there is no pod sluice-nats-0 in namespace gpus" in said


async def test_who_may_neither_list_accounts_nor_read_the_ca_learns_where_was_looked(
    installed: Laptop,
) -> None:
    for fault in (ACCOUNTS, AUTHORITY):
        installed.world.server.faults.add(fault)
    said = failed(await installed.run("plan", POOL), ExitCode.NOT_ALLOWED)
    assert "may read no ConfigMap sluice-nats-ca in gpu-operator or sluice; name its" in said


async def test_no_installation_and_several_are_told(laptop: Laptop) -> None:
    said = failed(await laptop.run("plan", POOL), ExitCode.NOT_FOUND)
    assert "no installation of Sluice is found in http://127.0.0.1:" in said
    for namespace in ("b", "a"):
        await laptop.install(namespace)
    said = failed(await laptop.run("plan", POOL), ExitCode.WRONG_ARGUMENTS)
    assert "installed in 2 namespaces: a, b; name one with --namespace or SLUICE_NAMESPACE" in said
    said = failed(await laptop.run("plan", POOL, "-n", "a"), ExitCode.NOT_FOUND)
    assert "there is no pod sluice-nats-0 in namespace a; name an existing NATS with --nats" in said
    said = failed(await laptop.run("plan", POOL, "-n", "c"), ExitCode.NOT_FOUND)
    assert "namespace c has no sluice-ctl, as an installation of Sluice has; correct" in said


async def test_a_cluster_without_sluice_is_told_as_such(laptop: Laptop) -> None:
    kube = laptop.world.kube
    for each in (await kube.list_all(CUSTOM_RESOURCE_DEFINITIONS)).items:
        name, uid = each.metadata.name, each.metadata.uid
        await kube.delete(CUSTOM_RESOURCE_DEFINITIONS, name, uid=uid)
    said = failed(await laptop.run("plan", POOL), ExitCode.NOT_FOUND)
    assert "the server does not serve the group sluice.dev; check the context" in said


async def test_pods_that_are_not_ready_are_named(laptop: Laptop) -> None:
    await laptop.install()
    await laptop.add_pod(0, to=None, ready=False, phase="Pending")
    await laptop.add_pod(1, to=None, ready=False)
    said = failed(await laptop.run("plan", POOL), ExitCode.NOT_REACHABLE)
    assert (
        f"no pod of NATS in namespace {NAMESPACE} is Ready: sluice-nats-0 (Pending), sluice-nats-1"
        f" (Running); see `kubectl -n {NAMESPACE} describe pod sluice-nats-0`"
    ) in said


async def test_what_the_kubelet_says_of_a_port_is_passed_on(laptop: Laptop) -> None:
    await laptop.install()
    await laptop.add_pod(to=None)
    said = failed(await laptop.run("plan", POOL), ExitCode.NOT_REACHABLE)
    assert "of the pod sluice-nats-0 the kubelet says: error forwarding port 4222" in said
    assert "connection refused" in said


async def test_a_pod_that_is_not_ready_or_does_not_answer_is_passed_over(
    installed: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portforward, "OPEN_SECONDS", 0.5)
    away = await installed.add_pod(1, to=None)
    await installed.add_pod(2, to=None, ready=False)
    installed.world.server.faults.add(Fault(effect=Hang(), verbs=("portforward",), name=away))
    for _ in range(3):
        assert (await installed.run("plan", POOL)).code == ExitCode.DONE


async def test_an_error_of_the_command_itself_is_told_as_one(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **_options: object) -> None:
        raise ZeroDivisionError("unforeseen")

    await laptop.install()
    await laptop.add_pod(to=None)
    monkeypatch.setattr(portforward.PortForwards, "open", fail)
    said = failed(await laptop.run("plan", POOL), ExitCode.UNEXPECTED)
    assert "unforeseen" in said


async def test_nothing_is_sent_to_a_server_of_another_name(laptop: Laptop) -> None:
    await laptop.install()
    nats = await laptop.start_nats(name="sluice-nats.elsewhere.svc")
    await laptop.add_pod(to=nats)
    admitted = list(laptop.world.sign_in.admitted)
    said = failed(await laptop.run("plan", POOL), ExitCode.NOT_REACHABLE)
    assert f"the server's certificate is not for sluice-nats.{NAMESPACE}.svc, but for" in said
    assert "sluice-nats.elsewhere.svc" in said
    assert laptop.world.sign_in.admitted == admitted
    assert not laptop.world.sign_in.refused


async def test_a_certificate_of_another_authority_says_how_to_name_it(laptop: Laptop) -> None:
    await laptop.install()
    laptop.authority = type(laptop.authority)("cert-manager")
    await laptop.add_pod(to=await laptop.start_nats())
    said = failed(await laptop.run("plan", POOL), ExitCode.NOT_REACHABLE)
    assert "not signed by a CA" in said
    assert "where cert-manager signs the certificate of NATS, name the file of its CA" in said


async def test_a_session_comes_back_by_another_pod(
    installed: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, dialled = installed.world.server, list[str]()
    check = server.check_forward

    async def record(call: ForwardCall, *, user: str) -> None:
        dialled.append(call.pod)
        await check(call, user=user)

    monkeypatch.setattr(server, "check_forward", record)
    (address,) = server.listening.values()
    with mock.patch.dict("os.environ", installed.world.environ):
        async with open_bus(Access(kubeconfig=installed.world.environ["KUBECONFIG"])) as bus:
            scheduler = Scheduler(bus)
            await scheduler.ask(StatusQuery(), QueryVerb.STATUS, StatusAnswer)
            await installed.set_ready("sluice-nats-0", False)
            await installed.add_pod(1, to=None)
            server.listening[ForwardCall(namespace=NAMESPACE, pod="sluice-nats-1", port=4222)] = (
                address
            )
            dialled.clear()
            await installed.nats.restart()
            async with asyncio.timeout(60):
                while True:
                    try:
                        await scheduler.ask(StatusQuery(), QueryVerb.STATUS, StatusAnswer)
                        break
                    except Failure:
                        await asyncio.sleep(0.2)
    assert set(dialled) == {"sluice-nats-1"}
