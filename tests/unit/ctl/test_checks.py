"""What `sluice doctor` says of what it found."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.queries import PoolStatus, StatusAnswer
from libs.contracts.rollout import (
    Brake,
    Counts,
    InFlight,
    RolloutPhase,
    RolloutSpec,
    RolloutStatus,
)
from libs.ctl.checks import (
    DRIVER_APP,
    Check,
    CheckedNode,
    Deployment,
    DeploymentSpec,
    DeploymentStatus,
    NodeInfo,
    NodeStatus,
    Right,
    Upgrade,
    Verdict,
    bus_fault,
    definitions_check,
    nodes_checks,
    not_answered,
    operands_check,
    rights_check,
    scheduler_checks,
    server_check,
    services_checks,
    upgrade_of,
    worst,
)
from libs.ctl.failures import ExitCode, Failure, KubeFailure, NoWayToNats
from libs.ctl.output import view_lines
from libs.ctl.policy_checks import OF_DRIVERS, Policy, PolicyStatus, policy_checks
from libs.ctl.views.doctor import doctor_view
from libs.kube.views import Condition, DaemonSet, DaemonSetStatus, Metadata
from libs.policy.render.rendered import Operand

NOW = 1_800_000_000.0
OK, UNKNOWN, WARNING, FAULT = Verdict
NONE = Upgrade()


def deployment(name: str, *, wanted: int, available: int) -> Deployment:
    return Deployment(
        metadata=Metadata(name=name),
        spec=DeploymentSpec(replicas=wanted),
        status=DeploymentStatus(available_replicas=available),
    )


def daemon_set(name: str, *, wanted: int, ready: int) -> DaemonSet:
    status = DaemonSetStatus(desired_number_scheduled=wanted, number_ready=ready)
    return DaemonSet(metadata=Metadata(name=name), status=status)


def node(name: str, runtime: str = "containerd://2.1.0", **conditions: str) -> CheckedNode:
    return CheckedNode(
        metadata=Metadata(name=name),
        status=NodeStatus(
            conditions=tuple(
                Condition(type=kind, status=status)
                for kind, status in {"Ready": "True", **conditions}.items()
            ),
            node_info=NodeInfo(container_runtime_version=runtime),
        ),
    )


def policy(state: str, *conditions: Condition, observed: int | None = 1) -> Policy:
    status = PolicyStatus(state=state, conditions=conditions, observed_generation=observed)
    return Policy(metadata=Metadata(name="gpus"), status=status)


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("v1.29.0", OK), ("v1.37.1", OK), ("v2.0.0", OK), ("v1.28.9", FAULT), ("v1.30+", OK)],
)
def test_an_old_server_is_a_fault(version: str, verdict: Verdict) -> None:
    assert server_check("https://api", version).verdict is verdict


def test_missing_definitions_are_named() -> None:
    assert definitions_check({"Rollout": True}).verdict is OK
    missing = definitions_check({"Rollout": False, "Device": True})
    assert (missing.verdict, missing.found) == (FAULT, "the cluster does not know Rollout")


def test_services_are_judged_by_their_replicas() -> None:
    deployments = [
        deployment("a", wanted=2, available=2),
        deployment("b", wanted=2, available=1),
        deployment("c", wanted=2, available=0),
        deployment("d", wanted=0, available=0),
    ]
    found = services_checks(deployments, "sluice")
    assert [check.verdict for check in found] == [OK, WARNING, FAULT, FAULT]
    (none,) = services_checks([], "sluice")
    assert none.verdict is FAULT
    assert "--namespace" in none.remedy


def test_operands_that_are_not_ready_are_named() -> None:
    late = [daemon_set(f"agent-{number}", wanted=3, ready=1) for number in range(5)]
    found = operands_check([*late, daemon_set("whole", wanted=3, ready=3)], "sluice", NONE)
    assert found.verdict is WARNING
    assert found.found == "not all are ready: agent-0 1/3, agent-1 1/3, agent-2 1/3 and 2 more"
    assert operands_check([daemon_set("whole", wanted=3, ready=3)], "sluice", NONE).verdict is OK
    assert operands_check([], "sluice", NONE).verdict is WARNING


def test_a_policy_tells_its_problems_once() -> None:
    conditions = (
        Condition(type="Accepted", status="True"),
        Condition(type="Ready", status="False", reason="Error"),
        Condition(type="Error", status="True", message="2 of 3 nodes have no driver"),
        Condition(type="NotReady", status="True"),
        Condition(type="MissingOperands", status="True", message="spec.dcgm has no effect"),
    )
    found = policy_checks({"ClusterPolicy gpus": policy("notReady", *conditions)}, NONE)
    assert [check.found for check in found] == [
        "Error is True: 2 of 3 nodes have no driver",
        "MissingOperands is True: spec.dcgm has no effect",
    ]
    ready_policy = policy("ready", Condition(type="Ready", status="True"))
    (ready,) = policy_checks({"ClusterPolicy gpus": ready_policy}, NONE)
    assert (ready.verdict, ready.found) == (OK, "ready")
    assert [check.verdict for check in policy_checks({}, NONE)] == [WARNING]
    (new,) = policy_checks({"ClusterPolicy new": Policy(metadata=Metadata(name="new"))}, NONE)
    assert new.verdict is FAULT
    (unseen,) = policy_checks({"ClusterPolicy new": policy("notReady", observed=-1)}, NONE)
    assert (unseen.verdict, unseen.found) == (FAULT, "it has no status")


def test_what_pipelines_are_told_is_no_fault_of_its_own() -> None:
    goes_on = Condition(type="Reconciling", status="True", reason="NotTakenUp", message="not yet")
    (found,) = policy_checks({"ClusterPolicy gpus": policy("ready", goes_on)}, NONE)
    assert (found.verdict, found.found) == (OK, "ready")


def test_a_definition_by_which_no_pipeline_can_wait_is_told() -> None:
    accepted = Condition(type="Accepted", status="True")
    policies = {"ClusterPolicy gpus": policy("ready", accepted, observed=None)}
    lacks, state = policy_checks(policies, NONE)
    assert (lacks.verdict, state.verdict) == (WARNING, OK)
    assert "lacks status.observedGeneration" in lacks.found
    led_by_operator = policy("ready", Condition(type="Ready", status="True"), observed=None)
    (found,) = policy_checks({"ClusterPolicy gpus": led_by_operator}, NONE)
    assert found.verdict is OK


def test_an_upgrade_that_goes_well_is_ok_and_one_that_needs_somebody_is_no_fault() -> None:
    not_ready = Condition(type="Error", status="True", message="1 of 3 nodes are done")
    upgrading = Condition(type="Upgrading", status="True", message="1 of 3 nodes are done")
    policies = {"ClusterPolicy gpus": policy("notReady", not_ready)}

    def verdict(upgrade: Upgrade) -> Verdict:
        (found,) = policy_checks(policies, upgrade)
        return found.verdict

    (good,) = policy_checks(policies, Upgrade(in_flight=1, waiting=2))
    assert good.verdict is OK
    assert good.found == "notReady, as an upgrade is under way: 1 in flight, 2 waiting"
    told_by_pools = (
        Upgrade(in_flight=1, failed=1),
        Upgrade(waiting=2, is_held=True),
        Upgrade(skipped=2),
    )
    assert [policy_checks(policies, each) for each in told_by_pools] == [[], [], []]
    assert verdict(Upgrade(waiting=2, skipped=1)) is OK
    assert verdict(NONE) is FAULT
    policies = {"ClusterPolicy gpus": policy("notReady", not_ready, upgrading)}
    assert verdict(NONE) is WARNING


def test_an_upgrade_explains_no_other_condition_of_a_policy() -> None:
    refused = Condition(type="Accepted", status="False", message="it is wrong")
    error = Condition(type="Error", status="True", message="1 of 3 nodes are done")
    policies = {"ClusterPolicy gpus": policy("notReady", refused, error)}
    (found,) = policy_checks(policies, Upgrade(in_flight=1))
    assert (found.verdict, found.found) == (FAULT, "Accepted is False: it is wrong")


def test_what_failed_besides_the_drivers_of_nodes_is_said_of_the_policy() -> None:
    assert f"{Operand.DRIVER.value} on " == OF_DRIVERS
    driver = "state-driver on n-1: the upgrade failed: driver-start: it exited; see its log"
    other = "state-device-plugin on n-2: its pod fails; state-dra-driver: it is refused"

    def degraded(message: str) -> list[Check]:
        condition = Condition(type="Degraded", status="True", message=message)
        return policy_checks({"a": policy("notReady", condition)}, Upgrade(failed=1))

    (told,) = degraded(f"{driver}; {other}; {driver}")
    assert (told.verdict, told.found) == (FAULT, f"Degraded is True: {other}")
    assert degraded(driver) == []


def test_what_an_nvidiadriver_has_is_said_of_it_and_not_of_the_cluster_policy() -> None:
    field = "nothing new starts until this is fixed: spec.image (a b) is no name: correct it"
    named = f"state-driver: NVIDIADriver serving: {field}"
    beside = "ClusterPolicy is not ready; NVIDIADriver upgrade has not completed; one or more"

    def conditions(error: str, degraded: str) -> tuple[Condition, Condition]:
        return (
            Condition(type="Error", status="True", message=error),
            Condition(type="Degraded", status="True", message=degraded),
        )

    driver = policy("notReady", Condition(type="Accepted", status="False", message=field))
    cluster = policy("notReady", *conditions(f"{beside}; {named}", named))
    policies = {"ClusterPolicy gpus": cluster, "NVIDIADriver serving": driver}
    for upgrade in (NONE, Upgrade(in_flight=1)):
        found = {each.about: each for each in policy_checks(policies, upgrade)}
        assert found["ClusterPolicy gpus"].verdict is OK
        assert found["ClusterPolicy gpus"].found == "notReady, as an NVIDIADriver is"
        assert found["NVIDIADriver serving"].verdict is FAULT
        assert field in found["NVIDIADriver serving"].found

    own = "state-device-plugin: it is refused"
    error = f"ClusterPolicy is not ready; states not ready: [state-device-plugin]; {own}; {named}"
    cluster = policy("notReady", *conditions(error, f"{own}; {named}"))
    policies = {"ClusterPolicy gpus": cluster, "NVIDIADriver serving": driver}
    of_cluster = [each.found for each in policy_checks(policies, NONE) if "Cluster" in each.about]
    assert len(of_cluster) == 2
    assert all(own in each and "serving" not in each for each in of_cluster)


def test_drivers_of_nodes_in_flight_are_expected_to_be_away_and_agents_are_not() -> None:
    driver = daemon_set("driver", wanted=3, ready=1)
    driver = replace(driver, metadata=Metadata(name="driver", labels={"app": DRIVER_APP}))
    agent = daemon_set("agent", wanted=3, ready=2)

    def verdict(*late: DaemonSet, **upgrade: Any) -> Verdict:
        return operands_check(late, "sluice", Upgrade(**upgrade)).verdict

    assert verdict(driver, in_flight=2) is OK
    assert verdict(driver, in_flight=1) is WARNING
    assert verdict(driver, in_flight=1, failed=1) is OK
    assert verdict(driver, agent, in_flight=3) is WARNING


def test_the_upgrade_is_that_of_all_pools() -> None:
    flight = {"u": InFlight(node="n", token=1, target="t", since=NOW)}
    going = RolloutStatus(in_flight=flight, counts=Counts(total=3, waiting=3))
    halted = RolloutStatus(
        phase=RolloutPhase.HALTED, because="by Sluice", counts=Counts(total=2, failed=1)
    )
    free, braked = RolloutSpec(), RolloutSpec(brake=Brake.PAUSE)
    assert upgrade_of([(free, going)]) == Upgrade(in_flight=1, waiting=2)
    both = Upgrade(in_flight=1, waiting=3, failed=1, is_held=True)
    assert upgrade_of([(free, going), (free, halted)]) == both
    assert upgrade_of([(braked, going)]).is_held
    last = RolloutStatus(in_flight=flight, counts=Counts(total=1))
    assert upgrade_of([(braked, last)]).is_held
    assert not upgrade_of([(braked, RolloutStatus(phase=RolloutPhase.COMPLETE))]).is_held


def test_nodes_with_a_problem_are_named() -> None:
    nodes = [
        node("whole"),
        node("away", Ready="Unknown"),
        node("sick", GPUHealthy="False"),
        node("old", "containerd://1.6.33"),
        node("other", "cri-o://1.30.0"),
    ]
    found = nodes_checks(nodes)
    assert [(check.verdict, check.found) for check in found] == [
        (WARNING, "not Ready: away"),
        (WARNING, "failed on: sick"),
        (WARNING, "without CDI on: old"),
    ]
    assert {check.verdict for check in nodes_checks(nodes[:1])} == {OK}
    assert [check.verdict for check in nodes_checks([])] == [WARNING]


def test_missing_rights_name_the_verb_that_needs_them() -> None:
    right = Right(
        verb="create", group="", resource="serviceaccounts", subresource="token", used_by="plan"
    )
    found = rights_check([right])
    assert found.found == "you may not: create serviceaccounts/token (for plan)"
    patch = Right(verb="patch", group="nvidia.com", resource="nvidiadrivers", used_by="plan")
    found = rights_check([right, patch])
    assert found.found.endswith("create serviceaccounts/token, patch nvidiadrivers (for plan)")
    assert rights_check([]).verdict is OK


@pytest.mark.parametrize(
    ("at", "sources", "verdicts"),
    [
        (NOW - 1, {"nodes": 2.0}, [OK, OK]),
        (NOW - 45, {}, [OK, WARNING]),
        (NOW + 45, {}, [OK, WARNING]),
        (NOW, {"nodes": 2.0, "pods": 300.0}, [OK, FAULT, OK]),
    ],
)
def test_the_scheduler_is_judged_by_its_sources_and_its_clock(
    at: float, sources: dict[str, float], verdicts: list[Verdict]
) -> None:
    answer = StatusAnswer(
        at=at, leader="scheduler-1", sources=sources, pools=(PoolStatus(pool="a"),)
    )
    assert [check.verdict for check in scheduler_checks(answer, now=NOW)] == verdicts


def test_a_view_says_what_is_wrong_first_and_what_is_ok_in_one_line() -> None:
    found = [
        Check(about="Kubernetes", verdict=OK, found="v1.37.1"),
        Check(about="clocks", verdict=OK, found="they agree"),
        Check(about="pool a", verdict=WARNING, found="paused", remedy="resume it"),
        Check(about="NATS", verdict=FAULT, found="away \x1b[2J", remedy="start it"),
    ]

    def lines(*, wide: bool = False) -> list[str]:
        return view_lines(doctor_view(found, wide=wide), width=80)

    first, *others = lines()
    assert first.startswith("fault    NATS: away ")
    assert "\x1b" not in first
    bad = ["         do: start it", "warning  pool a: paused", "         do: resume it"]
    assert others == [*bad, "ok       2 checks (-o wide): Kubernetes, clocks"]
    good = ["ok       Kubernetes: v1.37.1", "ok       clocks: they agree"]
    assert lines(wide=True) == [first, *bad, *good]
    assert (worst(found), worst([])) == (FAULT, OK)


@pytest.mark.parametrize(
    ("code", "server", "remedy"),
    [
        (ExitCode.NOT_FOUND, "v1.37.1+simulated", "nothing: this API server is simulated"),
        (ExitCode.NOT_FOUND, "v1.34.2", "see whether kubectl reads it"),
        (ExitCode.NOT_ALLOWED, "v1.34.2", "ask an administrator for the right"),
        (ExitCode.NOT_REACHABLE, "v1.37.1+simulated", "run it again once the API server answers"),
        (ExitCode.REFUSED, "v1.34.2", "run it again; if it lasts"),
    ],
)
def test_what_could_not_be_looked_at_says_why_and_what_to_do(
    code: ExitCode, server: str, remedy: str
) -> None:
    check = not_answered("services", Failure(code, "Kubernetes: no deployments"), server=server)
    assert (check.verdict, check.found) == (UNKNOWN, "Kubernetes: no deployments")
    assert check.remedy.startswith(remedy)


def test_a_file_for_nats_that_cannot_be_read_has_its_own_remedy() -> None:
    problem = "cannot read the token file t: is a directory"
    check = bus_fault(NoWayToNats(ExitCode.NOT_REACHABLE, problem, "name one"))
    assert (check.found, check.remedy) == (
        "cannot read the token file t: is a directory",
        "name one",
    )


def test_a_fault_of_nats_names_it_once_and_says_what_to_do() -> None:
    for code, remedy in (
        (ExitCode.NOT_REACHABLE, "see that its pods run"),
        (ExitCode.NOT_ALLOWED, "name credentials with --token-file"),
        (ExitCode.WRONG_ARGUMENTS, "correct --nats"),
    ):
        check = bus_fault(Failure(code, "NATS: refused"))
        assert (check.about, check.found) == ("NATS", "refused")
        assert check.remedy.startswith(remedy)


def test_an_api_server_that_does_not_answer_on_the_way_to_nats_says_nothing_of_nats() -> None:
    check = bus_fault(KubeFailure(ExitCode.NOT_REACHABLE, "Kubernetes: no answer within 5 s"))
    assert (check.about, check.verdict) == ("NATS", UNKNOWN)
    assert "no answer within 5 s" in check.found
