"""The pages for operators are complete where they list something."""

import re
from pathlib import Path

import msgspec
from msgspec.structs import replace

from libs.contracts.diagnoses import Diagnosis
from libs.contracts.node import UpgradeState
from libs.contracts.queries import WaitReason, WhyAnswer
from libs.contracts.rollout import Counts
from libs.contracts.waits import RESOLVED_BY, WaitCode
from libs.ctl.answers import NodeAnswer
from libs.ctl.observe import traps
from libs.ctl.views.node import node_view
from libs.ctl.views.status import status_view
from libs.fleet.node import FleetNode
from libs.fleet.pools import Pool
from libs.fleet.status import Source, Status
from tests.unit.ctl.test_views import NOW, text

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


def first_cells(page: str, section: str) -> list[str]:
    """Return the codes that begin a row of a table, below an anchor up to the next."""
    whole = (ROOT / "docs" / page).read_text()
    _, found, after = whole.partition(f'<a id="{section}"></a>')
    assert found
    return re.findall(r"^\| `([^`]+)` \|", after.partition("<a id=")[0], re.MULTILINE)


def test_the_runbook_has_each_wait_code_once() -> None:
    listed = first_cells("upgrade-day.md", "waits")
    assert sorted(listed) == sorted(code.value for code in WaitCode)
    assert set(listed) == {code.value for code in RESOLVED_BY}


def test_troubleshooting_has_each_diagnosis_once() -> None:
    listed = first_cells("troubleshooting.md", "diagnoses")
    assert sorted(listed) == sorted(each.value for each in Diagnosis)


def test_migrate_has_each_trap_once() -> None:
    source = Path(traps.__file__).read_text()
    named = re.findall(r'name="([^"]+)"', source)
    named += re.findall(r'^    \(\n        "([^"]+)"', source, re.MULTILINE)
    assert sorted(first_cells("migrate.md", "traps")) == sorted(named)


def test_the_readme_is_short() -> None:
    assert README.count("\n") <= 150


def test_the_readme_shows_what_the_command_prints() -> None:
    block = README.partition("    $ sluice status\n")[2].partition("**Status")[0]
    shown = [line.removeprefix("    ").rstrip() for line in block.splitlines()]
    status, _, why = "\n".join(shown).strip().partition("\n\n$ sluice why node-2\n")
    assert text(status_view(_status(), now=NOW, width=100), 100).rstrip() == status
    told = text(node_view(_node(), now=NOW), 100).splitlines()
    assert why.count("\n") == 2
    assert all(line in told for line in why.splitlines())


def _status() -> Status:
    pool = Pool(
        name="clusterpolicy-cluster-policy",
        version="580.95.05",
        target="2" * 32,
        phase="Proven",
        because="",
        brake="None",
        counts=msgspec.structs.asdict(Counts(total=6, done=2, in_flight=2, limit=2)),
        waits={"budget": 2, "jobs": 1, "validation": 1},
        budget=(
            "2 of at most 2 nodes (maxUnavailable) are unavailable: node-2 (in an upgrade), node-5"
            " (in an upgrade)"
        ),
    )
    waiting = UpgradeState.UPGRADE_REQUIRED
    rows = (
        replace(_row("node-2", 240.0), because="jobs: waiting for jobs to finish: team-a/train-7"),
        replace(_row("node-3", 420.0), state=waiting, in_flight=False, because="budget"),
        replace(_row("node-4", 420.0), state=waiting, in_flight=False, because="budget"),
        replace(
            _row("node-5", 60.0),
            state=UpgradeState.VALIDATION_REQUIRED,
            driver="580.95.05",
            because="validation: waiting for the validation",
        ),
    )
    return Status(pools=(pool,), nodes=rows, sources=())


def _row(name: str, age: float) -> FleetNode:
    return FleetNode(
        name=name,
        pool="clusterpolicy-cluster-policy",
        state=UpgradeState.WAIT_FOR_JOBS_REQUIRED,
        driver="570.86.15",
        since=NOW - age,
        attempt=1,
        in_flight=True,
        skipped=False,
        cause="",
    )


def _node() -> NodeAnswer:
    wait = WaitReason(
        code=WaitCode.JOBS,
        detail="waiting for jobs to finish: team-a/train-7",
        since=NOW - 240,
        who="the owners of the jobs",
    )
    row = _row("node-2", 240.0)
    return NodeAnswer(
        node=row,
        ready=True,
        cordoned=True,
        labels={},
        conditions=(),
        events=(),
        why=WhyAnswer(node="node-2", pool=row.pool, state=row.state, wait=wait),
        sources=(Source(name="the scheduler", gives="why"),),
    )
