"""`sluice audit`: verdicts from an audit log file, what it cannot judge, and its exit codes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from libs.contracts.node import (
    MANAGER,
    LeaseOwner,
    NodeLease,
    NodeRecord,
)
from libs.ctl.collect.audit import AuditSources, judged
from libs.ctl.collect.journals import JournalsRead
from libs.ctl.failures import ExitCode
from libs.ctl.output import view_lines
from libs.ctl.views.audit import audit_view
from libs.policy.kinds import KINDS
from libs.policy.kinds.device import DEVICE
from tests.builders.fleet import written
from tests.component.ctl.world import run_command
from tests.unit.kube.auditlog.audit_lines import START, UID, audit_line, response_object


def node_line(
    revision: int, token: int | None, *, manager: str = MANAGER, time: float = 0.0
) -> bytes:
    """Return the line of a write to a Node that then has a lease and a record of this token."""
    annotations: dict[str, str] = {}
    if token is not None:
        lease = NodeLease(node_uid=UID, owner=LeaseOwner.UPGRADE, token=token, since=START)
        annotations = written(NodeRecord(node_uid=UID, epoch=1, token=token, pool="p"), lease)
    answer = response_object("Node", "n1", revision, metadata={"annotations": annotations})
    query = {"fieldManager": manager}
    return audit_line("patch", "nodes", "n1", asked={}, answer=answer, query=query, time=time)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


BEFORE = node_line(1, None, manager="kubelet")
TAKEN = node_line(2, 1, time=10.0)
REPLACED = node_line(3, 2, time=20.0)


def verdicts(*logs: Path, code: int) -> dict[str, dict[str, Any]]:
    options = [part for log in logs for part in ("--audit-log", str(log))]
    ended = run_command("audit", *options, "-o", "json")
    assert (ended.code, ended.err) == (code, "")
    return {each["name"]: each for each in json.loads(ended.out)["invariants"]}


def test_a_violation_is_told_and_changes_the_exit_code(log: Path) -> None:
    log.write_bytes(BEFORE + TAKEN + REPLACED)
    found = verdicts(log, code=ExitCode.FAULT_FOUND)
    (told,) = found["I2"]["first"]
    assert told == "n1: token 2 of upgrade replaced token 1, which was still held"
    ended = run_command("audit", "--audit-log", str(log))
    assert f"I2 violated: {told}" in " ".join(ended.out.split())


def test_what_lacks_a_source_is_never_kept(log: Path) -> None:
    log.write_bytes(BEFORE)
    found = verdicts(log, code=ExitCode.DONE)
    assert list(found) == [f"I{number}" for number in range(1, 13)]
    for name in ("I5", "I7", "I9", "I11", "I12"):
        assert not found[name]["judged"]
        assert found[name]["not_judged"]
    assert found["I4"]["judged"]
    assert "agents' journals" in found["I2"]["not_judged"]
    told = run_command("audit", "--audit-log", str(log)).out
    assert "no operation began on n1 within the log" in " ".join(told.split())


def test_the_logs_of_several_servers_are_one_in_the_order_of_time(
    log: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.log"
    log.write_bytes(BEFORE + REPLACED)
    other.write_bytes(TAKEN.rstrip(b"\n"))
    assert verdicts(log, other, code=ExitCode.FAULT_FOUND)["I2"]["violations"] == 1


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        (b"no json\n", ExitCode.WRONG_ARGUMENTS, "line 1 of"),
        (b"", ExitCode.WRONG_ARGUMENTS, "no write is logged"),
        (None, ExitCode.NOT_FOUND, "audit.log cannot be read: no such file or directory\n"),
    ],
)
def test_a_log_that_is_of_no_use_is_one_clear_line(
    log: Path, text: bytes | None, code: ExitCode, told: str
) -> None:
    if text is not None:
        log.write_bytes(text)
    ended = run_command("audit", "--audit-log", str(log))
    assert ended.code == code
    assert told in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("journals", "missing"),
    [
        (JournalsRead(nodes=1, journals=1), "journals that begin well before the events"),
        (JournalsRead(nodes=1, journals=1, unread=["n2: driver: away"]), "missing or cut journals"),
        (JournalsRead(nodes=1, journals=1, problem="n2: away"), "missing or cut journals"),
    ],
)
def test_what_is_missing_of_journals_is_not_said_of_journals_that_were_read(
    journals: JournalsRead, missing: str
) -> None:
    sources = AuditSources(None, (), logs=(), events_problem="")
    sources.agents.missing["I9"].add("the journal of plugin on n1")
    (waits,) = (each for each in sources.verdict(journals).invariants if each.name == "I9")
    assert waits.not_judged == f"--audit-log; {missing}"


def test_without_any_source_it_says_what_to_give() -> None:
    ended = run_command("audit", "--kubeconfig", "/none")
    assert ended.code == ExitCode.NOT_REACHABLE
    assert "no --audit-log FILE is given" in ended.err
    assert "there is no such file" in ended.err


def test_without_a_log_it_says_how_to_get_one() -> None:
    verdict = judged(None, (), logs=(), events_problem="")
    told = view_lines(audit_view(verdict, width=500), width=500)
    *_, log, remedy, events, journals = told
    assert log == "writes: not from the API server's audit log: no --audit-log was given"
    assert "--audit-policy-file and --audit-log-path" in remedy
    assert "docs/invariants.md#audit-log" in remedy
    assert (events, journals[:10]) == ("0 events: from NATS", "journals: ")


def test_the_policy_on_the_page_logs_what_is_judged() -> None:
    page = Path("docs/invariants.md").read_text()
    policy = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0])

    def level(verb: str, group: str, resource: str) -> str:
        """Return the level of the first rule that matches, as an API server does."""
        for rule in policy["rules"]:
            resources = [
                each.get("resources", [resource])
                for each in rule.get("resources", [{"group": group}])
                if each["group"] == group
            ]
            named = (resource, f"{resource.partition('/')[0]}/*")
            if verb in rule.get("verbs", [verb]) and any(set(named) & set(r) for r in resources):
                return rule["level"]
        return "None"

    judged_writes = [
        *(("", name) for name in ("nodes", "nodes/status", "pods", "pods/eviction", "events")),
        ("events.k8s.io", "events"),
        ("sluice.dev", "rollouts/status"),
        *((kind.group, kind.plural) for kind in KINDS.values()),
    ]
    for group, resource in judged_writes:
        assert level("patch", group, resource) == "RequestResponse", resource
        assert level("get", group, resource) == "None", resource
    for group, resource in (("", "secrets"), (DEVICE.group, DEVICE.plural)):
        assert level("patch", group, resource) == "None"
