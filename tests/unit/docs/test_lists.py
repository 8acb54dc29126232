"""The pages for operators are complete where they list something."""

import re
from pathlib import Path

import msgspec

from libs.contracts.diagnoses import Diagnosis
from libs.contracts.node import WaitCode
from libs.contracts.queries import WaitReason, WhyAnswer
from libs.contracts.rollout import Counts
from libs.ctl.answers import NodeAnswer, Pool, Source, Status
from libs.ctl.node_rows import NodeRow
from libs.ctl.observe import traps
from libs.ctl.views.node import node_view
from libs.ctl.views.status import status_view
from libs.rollout.wait_reasons import RESOLVED_BY
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
        counts=msgspec.structs.asdict(Counts(total=12, done=3, in_flight=2, limit=3)),
        waits={"budget": 7},
    )
    return Status(pools=(pool,), nodes=(_row("node-2", 240.0), _row("node-5", 60.0)), sources=())


def _row(name: str, age: float) -> NodeRow:
    return NodeRow(
        name=name,
        pool="clusterpolicy-cluster-policy",
        state="wait-for-jobs-required" if name == "node-2" else "validation-required",
        driver="570.86.15" if name == "node-2" else "580.95.05",
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
