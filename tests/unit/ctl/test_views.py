"""Views as text, at 80 and 40 columns."""

from typing import Any

import msgspec
from msgspec.structs import asdict, replace
from rich.console import RenderableType

from libs.audit import TITLES
from libs.audit.write_counts import WAITS
from libs.contracts.device import DeviceHealth, DeviceSpec, DeviceStatus
from libs.contracts.diagnoses import Diagnosis
from libs.contracts.events import about_gpu
from libs.contracts.node import STATE_LABEL, LeaseOwner, NodeLease, NodeRecord
from libs.contracts.queries import NodeWait, PoolStatus, StatusAnswer, WaitReason, WhyAnswer
from libs.contracts.rollout import Counts, RolloutStatus
from libs.contracts.waits import WAITS_REASON, WaitCode
from libs.ctl.answers import Audit, AuditedInvariant, NodeAnswer, NodeFact
from libs.ctl.cluster import Device
from libs.ctl.collect.gpus import gpu_of
from libs.ctl.node_answers import node_answer
from libs.ctl.output import view_lines
from libs.ctl.views.audit import audit_view
from libs.ctl.views.events import ChangedLines, FollowedEvents, event_line
from libs.ctl.views.gpus import gpus_view
from libs.ctl.views.node import node_view
from libs.ctl.views.status import node_note, status_view
from libs.fleet.gpus import FleetGpu
from libs.fleet.node import VERSION_LABEL, DriverState, FleetNode
from libs.fleet.pools import Pool
from libs.fleet.status import EventLine, Source, Status, with_reasons
from libs.kube import views
from libs.kube.authors import Author
from tests.builders.fleet import written

NOW = 1_800_000_000.0
KUBERNETES = Source(name="Kubernetes (https://api)", gives="pools and nodes", age=0.0)


def text(view: RenderableType, width: int) -> str:
    return "\n".join(view_lines(view, width=width))


def node(name: str, **changes: Any) -> FleetNode:
    moving = {"state": "validation-required", "since": NOW - 90, "attempt": 2, "in_flight": True}
    known: dict[str, Any] = {"driver": "580.95.05", **moving, **changes}
    return FleetNode(name=name, pool="gpus", **known)


STATUS = Status(
    pools=(
        Pool(
            name="gpus",
            version="580.95.05",
            target="2" * 32,
            phase="Halted",
            because="two nodes failed validation on node-1 and on node-2 \x1b[31m",
            halt_ended_by="sluice upgrade release 580.95.05 gpus --failures 2",
            brake="Pause",
            brake_set=Author(name="alice", at=NOW - 300, reason="bad driver"),
            counts=asdict(Counts(total=12, done=3, in_flight=1, failed=2, skipped=1)),
            waits={"budget": 2, "halted": 4},
            budget="2 of at most 2 nodes are unavailable: node-2, node-3",
            without_gpus=1,
        ),
    ),
    nodes=(node("node-2"), node("node-3", state="upgrade-failed", cause="the driver did not load")),
    sources=(
        KUBERNETES,
        Source(name="scheduler s-1", gives="waits", age=2.0, behind={"nodes": 0.4, "bus": 91.0}),
    ),
)

STATUS_80 = """\
POOL  DRIVER     PHASE   DONE  IN FLIGHT  FAILED
gpus  580.95.05  Halted  3/12          1       2
  gpus brake: Pause, set by alice 5 min ago: bad driver; `sluice upgrade resume
  gpus` ends it
  gpus Halted: two nodes failed validation on node-1 and on node-2 �[31m;
  `sluice upgrade release 580.95.05 gpus --failures 2` accepts that
  gpus waits: 4 halted, 2 budget
  gpus budget: 2 of at most 2 nodes are unavailable: node-2, node-3
  gpus GPUs: 1 node has a GPU that no container can have
  gpus left out: 1 skipped

NODE    STATE                     SINCE  DRIVER     BECAUSE
node-2  validation-required  1 min 30 s  580.95.05  attempt 2
node-3  upgrade-failed       1 min 30 s  580.95.05  the driver did not load;
                                                    attempt 2

pools and nodes: from Kubernetes (https://api), 0 s old
waits: from scheduler s-1, 2 s old
  its own sources are behind: bus by 1 min 31 s"""

STATUS_40 = """\
gpus
  driver: 580.95.05
  phase: Halted
  done: 3/12
  in flight: 1
  failed: 2
  gpus brake: Pause, set by alice 5 min
  ago: bad driver; `sluice upgrade
  resume gpus` ends it
  gpus Halted: two nodes failed
  validation on node-1 and on node-2
  �[31m; `sluice upgrade release
  580.95.05 gpus --failures 2` accepts
  that
  gpus waits: 4 halted, 2 budget
  gpus budget: 2 of at most 2 nodes are
  unavailable: node-2, node-3
  gpus GPUs: 1 node has a GPU that no
  container can have
  gpus left out: 1 skipped

node-2
  state: validation-required
  since: 1 min 30 s
  driver: 580.95.05
  because: attempt 2
node-3
  state: upgrade-failed
  since: 1 min 30 s
  driver: 580.95.05
  because: the driver did not load;
  attempt 2

pools and nodes: from Kubernetes
(https://api), 0 s old
waits: from scheduler s-1, 2 s old
  its own sources are behind: bus by 1
  min 31 s"""


def test_status_is_a_table_or_blocks_of_lines_and_harms_no_terminal() -> None:
    assert text(status_view(STATUS, now=NOW, width=80), 80) == STATUS_80
    assert text(status_view(STATUS, now=NOW, width=40), 40) == STATUS_40


def test_more_nodes_in_flight_than_may_be_unavailable_are_explained_by_first_drivers() -> None:
    def told(operation: str, limit: int) -> str:
        counts = asdict(Counts(total=6, done=1, in_flight=5, limit=limit))
        pool = msgspec.structs.replace(STATUS.pools[0], counts=counts)
        moving = node("node-2", operation=operation)
        found = Status(pools=(pool,), nodes=(moving,), sources=())
        return text(status_view(found, now=NOW, width=100), 100)

    why = "more than maxUnavailable (4): nodes without a driver have no capacity to lose"
    assert f"  gpus in flight: {why}" in told("bring-up", 4).splitlines()
    assert "more than" not in told("bring-up", 5)
    assert "more than" not in told("upgrade", 4)


def test_each_node_says_what_it_waits_for_and_nothing_twice() -> None:
    details = "(it exited with code 1; all of it: `kubectl logs -n x p`)"
    told = (
        NodeWait(node="n-1", code=WaitCode.BUDGET, detail="2 of at most 2 nodes are unavailable"),
        NodeWait(node="n-2", code=WaitCode.JOBS, detail=f"job a for target {'2' * 32}"),
        NodeWait(
            node="n-3",
            code=WaitCode.FAILED,
            detail=f"the upgrade failed: driver-start: x {details}",
        ),
        NodeWait(node="n-4", code=WaitCode.SKIPPED, detail="skipped by its label"),
    )
    answer = StatusAnswer(at=NOW, pools=(PoolStatus(pool="gpus", node_waits=told),))
    rows = (
        node("n-1", attempt=1),
        node("n-2", attempt=1),
        node("n-3", state="upgrade-failed", cause=f"driver-start: x {details}"),
        node("n-4", attempt=1, skipped=True),
        node("n-5", attempt=1),
    )
    found = with_reasons(rows, answer, {"2" * 32: "580.95.05"})
    shown = text(status_view(Status(pools=(), nodes=found, sources=()), now=NOW, width=200), 200)
    reasons = [
        each.partition("580.95.05")[2].strip() for each in shown.splitlines() if "n-" in each
    ]
    assert reasons == [
        "budget",
        "jobs: job a for target 580.95.05",
        "the upgrade failed: driver-start: x (it exited with code 1); attempt 2",
        "skipped: skipped by its label",
        "",
    ]
    assert with_reasons(rows, None, {}) == rows


def test_the_failure_of_an_earlier_attempt_is_said_to_be_one() -> None:
    cause = "driver-start: the driver container restarted 3 times"
    assert node_note(node("n", cause=cause)) == f"earlier attempt: {cause}; attempt 2"
    assert node_note(node("n", cause=cause, state="upgrade-failed")) == f"{cause}; attempt 2"
    released = node("n", cause=cause, state="upgrade-required", attempt=0, in_flight=False)
    assert node_note(released) == f"earlier attempt: {cause}"
    details = " (it exited with code 1, and its log ends: no; all of it: `kubectl logs -n x p`)"
    crashed = node("n", cause=f"{cause}{details}")
    assert node_note(crashed) == f"earlier attempt: {cause}; attempt 2"
    failed = node("n", cause=f"{cause}{details}", state="upgrade-failed")
    assert node_note(failed) == (
        f"{cause} (it exited with code 1, and its log ends: no); attempt 2"
    )
    for why in ("requested by kubectl-label", "adopted in upgrade-done"):
        assert node_note(node("n", cause=why)) == f"{why}; attempt 2"


def test_wide_shows_targets_too() -> None:
    wide = text(status_view(STATUS, now=NOW, width=160, wide=True), 160)
    assert "2" * 32 in wide.splitlines()[1]


def test_a_cordon_of_a_person_is_told_before_during_and_after_an_upgrade() -> None:
    def note(**changes: object) -> str:
        rows = (node("n", attempt=1, cordoned=True, **changes),)
        return text(status_view(Status(pools=(), nodes=rows, sources=()), now=NOW, width=90), 90)

    assert "580.95.05  cordoned\n" in note(in_flight=False)
    assert "580.95.05  cordoned before its upgrade\n" in note(was_cordoned=True)
    assert "cordoned" not in note()


def test_of_many_nodes_the_failed_and_those_in_flight_are_shown() -> None:
    nodes = [node(f"n-{number}", state="upgrade-required", in_flight=False) for number in range(90)]
    nodes[70] = node("moves")
    nodes[80] = node("failed", state="upgrade-failed", in_flight=False)
    many = Status(pools=(), nodes=tuple(nodes), sources=())
    lines = text(status_view(many, now=NOW, width=80), 80).splitlines()
    names = [row.split()[0] for row in lines[lines.index("") + 2 :] if row]
    assert names == ["failed", "moves", *(f"n-{number}" for number in range(10)), "and"]
    assert "and 78 more nodes; -o wide lists all" in lines
    assert text(status_view(many, now=NOW, width=80, wide=True), 80).count("upgrade-required") == 88


def test_status_without_a_pool_says_so() -> None:
    empty = Status(
        pools=(), nodes=(), sources=(Source(name="it", gives="waits", problem="is away"),)
    )
    assert text(status_view(empty, now=NOW, width=80), 80) == (
        "There is no pool: no policy selects a node with GPUs.\n\nwaits: not from it: is away"
    )


def test_a_node_begins_with_the_reason_and_ends_with_the_sources() -> None:
    wait = WaitReason(
        code=WaitCode.PDB,
        detail="the disruption budget web allows no eviction",
        since=NOW - 3700,
        until=NOW + 600,
        who="the owner of the disruption budget",
    )
    answer = NodeAnswer(
        node=node("node-2"),
        ready=False,
        cordoned=True,
        labels={},
        conditions=(
            NodeFact(name="Ready=False", text="KubeletNotReady", at="2027-01-14T23:00:00Z"),
        ),
        events=(
            NodeFact(
                name="GPUDriverUpgrade",
                text="Successfully updated node state label to drain-required",
                at="2027-01-15T07:00:00Z",
            ),
        ),
        why=WhyAnswer(
            node="node-2",
            pool="gpus",
            state="drain-required",
            wait=wait,
            history=("cordoned by somebody with kubectl", "upgrade begins"),
            history_at=(NOW - 86_400, NOW - 3_700),
            no_gpus="no NVIDIA driver is loaded",
            container_runtime="containerd does not know the handlers nvidia",
            next_kernel="the next boot runs kernel 6.8.0-50-generic",
            diagnoses=(Diagnosis.NOUVEAU, Diagnosis.SHARED_MEMORY),
        ),
        sources=(KUBERNETES,),
    )
    assert text(node_view(answer, now=NOW), 80) == (
        """\
node-2 waits: pdb
  because: the disruption budget web allows no eviction
  since: 1 h 1 min ago (2027-01-15 06:58:20 UTC)
  ends at the latest: in 10 min (2027-01-15 08:10:00 UTC)
  can be ended by: the owner of the disruption budget
  containers lack GPUs: no NVIDIA driver is loaded
  container runtime: containerd does not know the handlers nvidia
  next kernel: the next boot runs kernel 6.8.0-50-generic
  diagnosis nouveau: the open driver nouveau is loaded; it excludes every other
  driver: blacklist nouveau on this machine and reboot it
  note shared-memory: the machine's /dev/shm is missing or has less than 64 MiB:
  mount a tmpfs at /dev/shm: programs that use several GPUs need it
  pool: gpus
  state: validation-required, for 1 min 30 s
  driver: 580.95.05
  kubelet: the Node is not Ready
  cordon: no new pods are scheduled on the node
  note: attempt 2

history:
  2027-01-14 08:00:00Z cordoned by somebody with kubectl
  06:58:20Z upgrade begins

conditions:
  2027-01-14 23:00:00Z Ready=False: KubeletNotReady

Events:
  07:00:00Z state drain-required

pools and nodes: from Kubernetes (https://api), 0 s old"""
    )


def test_a_wait_that_nobody_has_to_end_ends_by_itself() -> None:
    wait = WaitReason(
        code=WaitCode.DRIVER_START, detail="the driver loads", since=NOW, who="itself"
    )
    answer = NodeAnswer(
        node=node("node-2"),
        ready=True,
        cordoned=False,
        labels={},
        conditions=(),
        events=(),
        why=WhyAnswer(node="node-2", wait=wait),
        sources=(KUBERNETES,),
    )
    assert "  ended by: itself\n" in text(node_view(answer, now=NOW), 80)


def test_events_of_waits_that_are_over_are_said_to_be_earlier() -> None:
    assert WAITS_REASON == WAITS  # as the scheduler writes it
    facts = (
        NodeFact(name=WAITS_REASON, text="agent-silent: nothing reported", at="1"),
        NodeFact(name=WAITS_REASON, text="jobs: waiting for jobs", at="2"),
        NodeFact(name="GPUDriverUpgrade", text="state changed", at="3"),
    )

    def told(why: WhyAnswer | None, *, wide: bool = False) -> str:
        plain = views.Node(metadata=views.Metadata(name="node-2"))
        answer = node_answer(plain, facts, why=why, sources=())
        return text(node_view(answer, now=NOW, wide=wide), 80)

    def waiting(code: WaitCode) -> WhyAnswer:
        return WhyAnswer(node="node-2", wait=WaitReason(code=code, detail="it", since=NOW))

    lines = "  1 earlier: agent-silent: nothing reported\n  2 jobs: waiting for jobs\n"
    assert f"{lines}  3 state changed" in told(waiting(WaitCode.JOBS))
    wide = f"  1 {WAITS_REASON}: earlier: agent-silent: nothing reported\n"
    assert wide in told(waiting(WaitCode.JOBS), wide=True)
    assert told(waiting(WaitCode.PDB)).count("earlier: ") == 2
    assert told(WhyAnswer(node="node-2", in_place=True)).count("earlier: ") == 2
    assert "earlier: " not in told(None)


def test_an_event_of_an_earlier_wait_with_the_same_code_is_said_to_be_earlier() -> None:
    def is_over(told_at: str, changed_at: float | None, *, other: str = "") -> bool:
        """Return it of an Event; the present wait began at 08:00."""
        event = NodeFact(name=WAITS_REASON, text="jobs: waiting for jobs", at=told_at)
        step = NodeFact(name="GPUDriverUpgrade", text="state changed", at=other)
        wait = WaitReason(code=WaitCode.JOBS, detail="it", since=NOW)
        changes = () if changed_at is None else (changed_at,)
        why = WhyAnswer(node="node-2", wait=wait, history=("x",) * len(changes), history_at=changes)
        facts = (event, *([step] if other else []))
        plain = views.Node(metadata=views.Metadata(name="node-2"))
        return node_answer(plain, facts, why=why, sources=()).events[0].is_over

    assert is_over("2027-01-15T07:30:00Z", NOW - 60)
    assert is_over("2027-01-15T07:30:00Z", None, other="2027-01-15T07:40:00Z")
    # Another leader told of the present wait; nothing has happened to the node since.
    assert not is_over("2027-01-15T07:30:00Z", None)
    assert not is_over("2027-01-15T07:30:00Z", NOW - 3_600)
    assert not is_over("2027-01-15T08:00:00Z", NOW - 60)
    assert not is_over("2027-01-15T08:05:00Z", NOW + 60)


def test_a_brake_is_told_once_with_who_set_it_and_what_ends_it() -> None:
    def told(author: Author | None, because: str) -> str:
        (pool,) = STATUS.pools
        braked = replace(pool, phase="Proven", because=because, brake_set=author)
        status = replace(STATUS, pools=(braked,), nodes=())
        return text(status_view(status, now=NOW, width=200), 200)

    alice = Author(name="alice", at=NOW - 300, reason="bad driver")
    because = "Rollout gpus is paused by alice (spec.brake: Pause): bad driver"
    ends = "`sluice upgrade resume gpus` ends it"
    brake = f"  gpus brake: Pause, set by alice 5 min ago: bad driver; {ends}\n"
    assert brake in told(alice, because)
    assert "gpus Proven" not in told(alice, because)
    assert "  gpus Proven: Rollout gpus was lost" in told(alice, "Rollout gpus was lost")
    unknown = told(None, "Rollout gpus is paused (spec.brake: Pause)")
    assert f"  gpus brake: Pause; {ends}\n" in unknown
    assert "gpus Proven" not in unknown


def leased_node_shown(*, waits: bool = False) -> str:
    """Return what `why` says of a node that ann has, or waits for, in a pool that wants another."""
    owner = LeaseOwner.HUMAN
    lease = NodeLease(node_uid="u", owner=owner, token=1, since=NOW, who="ann", reason="a riser")
    record = NodeRecord(node_uid="u", epoch=1, token=1, pool="gpus", target="old")
    operation = replace(lease, owner=LeaseOwner.UPGRADE)
    metadata = views.Metadata(
        name="node-9",
        uid="u",
        labels={STATE_LABEL: "upgrade-done", VERSION_LABEL: "570.86.15"},
        annotations=written(record, operation if waits else lease, lease if waits else None),
    )
    wait = WaitReason(
        code=WaitCode.JOBS if waits else WaitCode.SKIPPED,
        detail="ann has the node since 2027-01-15 08:00 UTC: a riser",
        since=NOW,
        who="ann or an administrator, by `sluice lease return node-9`",
    )
    answer = node_answer(
        views.Node(metadata=metadata),
        (),
        why=WhyAnswer(node="node-9", pool="gpus", wait=wait),
        rollout=RolloutStatus(version="580.95.05", target="new"),
        sources=(),
    )
    return text(node_view(answer, now=NOW), 200)


def test_a_node_that_is_done_with_an_earlier_driver_says_which_its_pool_wants() -> None:
    assert "  driver: 570.86.15; its pool wants 580.95.05\n" in leased_node_shown()


def test_a_lease_for_which_a_node_waits_is_told_once() -> None:
    shown = leased_node_shown()
    assert (shown.count("a riser"), shown.count("lease return node-9")) == (1, 1)
    claimed = leased_node_shown(waits=True)
    assert (
        "  lease: ann asked for the node 0 s ago, once the operation on it ends: a riser" in claimed
    )


def skipped_node_shown(*, who: str, detail: str = "the node has the skip label") -> str:
    """Return what `why` says of a node with the skip label that waits for this."""
    wait = WaitReason(code=WaitCode.SKIPPED, detail=detail, since=NOW - 2, who=who)
    answer = NodeAnswer(
        node=node("node-8", state="upgrade-required", skipped=True, attempt=0, in_flight=False),
        ready=True,
        cordoned=False,
        skip_set=Author(name="somebody with sluice", at=NOW - 3),
        labels={},
        conditions=(),
        events=(),
        why=WhyAnswer(node="node-8", pool="gpus", wait=wait),
        sources=(),
    )
    return text(node_view(answer, now=NOW), 200)


def test_the_skip_label_is_told_once_with_who_set_it_and_what_ends_it() -> None:
    unskip = "an administrator, by `sluice upgrade unskip node-8`"
    assert skipped_node_shown(who=unskip).startswith(
        f"""\
node-8 waits: skipped
  because: the node has the skip label, set by somebody with sluice
  since: 2 s ago (2027-01-15 07:59:58 UTC)
  can be ended by: {unskip}
  pool: gpus
  state: upgrade-required, for 1 min 30 s
  driver: 580.95.05
"""
    )
    assert skipped_node_shown(who=unskip).count("skip") == 3
    other = skipped_node_shown(who="bob", detail="bob has the node")
    assert "  skip label: no upgrade starts on the node; set by somebody with sluice" in other
    assert "note: skipped" not in other


def test_a_request_and_the_step_that_it_leads_to_are_one_line_of_history() -> None:
    why = WhyAnswer(
        node="node-2",
        in_place=True,
        history=("asked", "asked", "begins", "asked"),
        history_at=(NOW - 9, NOW - 8, NOW - 7, NOW - 6),
    )
    plain = views.Node(metadata=views.Metadata(name="node-2"))
    shown = text(node_view(node_answer(plain, (), why=why, sources=()), now=NOW, wide=True), 80)
    lines = ("07:59:51Z asked", "07:59:53Z begins", "07:59:54Z asked")
    assert "history:\n" + "\n".join(f"  {each}" for each in lines) in shown


def test_who_cordoned_a_node_is_said_as_far_as_it_is_known() -> None:
    def told(author: Author | None) -> str:
        answer = NodeAnswer(
            node=node("node-2"),
            ready=True,
            cordoned=True,
            cordon_set=author,
            labels={},
            conditions=(),
            events=(),
            why=None,
            sources=(),
        )
        return text(node_view(answer, now=NOW), 80)

    means = "  cordon: no new pods are scheduled on the node"
    assert f"{means}\n" in told(None)
    assert f"{means}; set by Sluice\n" in told(Author(name="Sluice"))
    by_helm = Author(name="somebody with x", at=NOW - 300)
    assert f"{means}; set by somebody with x, at\n  least 5 min ago\n" in told(by_helm)


def test_the_reason_stays_on_the_screen_whatever_has_happened() -> None:
    wait = WaitReason(code=WaitCode.JOBS, detail="a job " * 30, since=NOW, who="its owners")
    answer = NodeAnswer(
        node=node("node-2"),
        ready=True,
        cordoned=True,
        labels={},
        conditions=(NodeFact(name="GPUHealthy=True", text="all 8 GPUs are healthy"),),
        events=tuple(
            NodeFact(name=f"Wait{number}", text=f"{number} " + "x " * 300) for number in range(10)
        ),
        why=WhyAnswer(node="node-2", wait=wait, history=tuple("abcdefg")),
        sources=(KUBERNETES, KUBERNETES),
    )
    lines = text(node_view(answer, now=NOW), 80).splitlines()
    assert len(lines) <= 23
    assert "Events, the last 3 of 10:" in lines
    assert [line[:5] for line in lines if line.endswith("…")] == ["  7 x", "  8 x", "  9 x"]
    wide = text(node_view(answer, now=NOW, wide=True), 80)
    assert all(f"Wait{number}: {number} x" in wide for number in range(10))
    assert "GPUHealthy=True" in wide
    assert "…" not in wide


def gpu(index: int, health: str, because: str = "", remedy: str = "") -> FleetGpu:
    return FleetGpu(
        node="node-1",
        index=index,
        product="NVIDIA H100",
        memory_mib=81_559,
        health=health,
        because=because,
        remedy=remedy,
        uuid=f"GPU-{index}",
        driver="580.95.05",
        mig="disabled",
    )


def test_a_failed_node_tells_its_failure_once() -> None:
    cause = "driver-start: the driver container restarted 3 times (it exited with code 1)"
    detail = f"the upgrade failed: {cause}; no retry while the target is halted: by Sluice"
    wait = WaitReason(code=WaitCode.FAILED, detail=detail, since=NOW - 5, who="an administrator")
    answer = NodeAnswer(
        node=node(
            "n",
            state="upgrade-failed",
            cause=cause,
            attempt=2,
            in_flight=False,
            driver_state=DriverState.NONE,
        ),
        ready=True,
        cordoned=False,
        labels={},
        conditions=(),
        events=(
            NodeFact(
                name=WAITS_REASON, text=f"failed: {detail}. Can be ended by: an administrator"
            ),
        ),
        why=WhyAnswer(
            node="n",
            wait=wait,
            no_gpus="the driver or the GPUs are being changed",
            history=(f"the upgrade fails: {cause}", f"failed: {cause}"),
        ),
        sources=(),
    )
    shown = text(node_view(answer, now=NOW), 200)
    assert shown.count("restarted 3 times") == 1
    assert "  note: attempt 2\n" in shown
    assert "  failed: (as above)\n" in shown
    assert shown.count("an administrator") == 1
    assert "  driver: none (was 580.95.05)" in shown
    assert "being changed" not in shown
    assert text(node_view(answer, now=NOW, wide=True), 200).count("restarted 3 times") == 4


def test_gpus_are_counted_and_the_sick_are_rows_with_a_reason() -> None:
    gpus = [gpu(0, "ok"), gpu(1, "failed", "Xid 79", "reboot the node"), gpu(2, "unknown")]
    assert text(gpus_view(gpus, width=80), 80) == (
        """\
3 GPUs on 1 node, 1 healthy, 1 failed, 1 unknown
NODE    GPU  PRODUCT      MEMORY  HEALTH
node-1    1  NVIDIA H100  80 GiB  failed
node-1    2  NVIDIA H100  80 GiB  unknown
  node-1 GPU 1 failed: Xid 79 (reboot the node)"""
    )
    same = [gpu(0, "failed", "Xid 79"), gpu(1, "failed", "Xid 79"), gpu(2, "failed", "ECC")]
    *_, first, second = text(gpus_view(same, width=80), 80).splitlines()
    assert first == "  node-1 GPU 0, 1 failed: Xid 79"
    assert second == "  node-1 GPU 2 failed: ECC"
    for all_rows in (gpus_view(gpus, width=80, every=True), gpus_view(gpus, width=200, wide=True)):
        assert "\nnode-1    0  NVIDIA H100  80 GiB  ok" in text(all_rows, 200)


def test_gpus_without_a_driver_are_not_counted_as_healthy_and_their_node_is_named_once() -> None:
    device = Device(
        metadata=views.Metadata(name="gpu-0"),
        spec=DeviceSpec(node="node-2", index=0, product="NVIDIA H100"),
        status=DeviceStatus(health=DeviceHealth(state="ok")),
    )
    assert gpu_of(device).health == "ok"
    off = gpu_of(device, DriverState.NONE)
    gpus = [gpu(0, "ok"), gpu(1, "failed", "Xid 79"), off, replace(off, index=1)]
    assert text(gpus_view(gpus, width=80), 80) == (
        """\
4 GPUs on 2 nodes, 1 healthy, 1 failed, 2 without a driver
NODE    GPU  PRODUCT      MEMORY  HEALTH
node-1    1  NVIDIA H100  80 GiB  failed
  node-1 GPU 1 failed: Xid 79
  node-2, 2 GPUs: its driver was unloaded, and the next one does not start
  (sluice why node-2)"""
    )
    assert text(gpus_view([off], width=80), 80).startswith("1 GPU on 1 node, 0 healthy, 1 without")
    broken = replace(device.status, health=DeviceHealth(state="failed", reason="Xid"))
    told = gpu_of(replace(device, status=broken), DriverState.CHANGING)
    assert (told.health, told.because) == ("failed", "Xid")


def test_nodes_whose_gpus_no_driver_has_shown_yet_are_named() -> None:
    def shown(*gpus: FleetGpu, without: tuple[str, ...]) -> list[str]:
        return text(gpus_view(gpus, without=without, width=80), 80).splitlines()

    assert shown(gpu(0, "ok"), without=("node-3", "node-4")) == [
        "1 GPU on 1 node, 1 healthy",
        "2 nodes with GPUs have no driver yet: node-3, node-4",
    ]
    assert shown(without=("node-3",)) == ["1 node with GPUs has no driver yet: node-3"]


def test_healthy_gpus_and_those_that_nobody_judges_are_one_line() -> None:
    healthy = [gpu(index, "ok") for index in range(8)]
    assert text(gpus_view(healthy, width=80), 80) == "8 GPUs on 1 node, 8 healthy"
    unknown = [gpu(index, "unknown") for index in range(8)]
    assert text(gpus_view(unknown, width=80), 80) == (
        "8 GPUs on 1 node; no telemetry agent has reported on their health"
    )


def test_a_long_event_goes_on_below_itself_where_there_is_room() -> None:
    event = EventLine(at=NOW, writer="scheduler", node="node-1", kind="step", message="begins " * 9)
    first, second = text(event_line(event), 80).splitlines()
    assert second.index("begins") == first.index("node-1")
    assert text(event_line(event), 40).splitlines()[1].startswith("begins")


def changes(*events: tuple[float, str, str], node: str = "n") -> list[str]:
    """Return what is told of events at seconds from NOW, of a kind, with a message."""
    return joined(*((at, node, kind, message) for at, kind, message in events))


def joined(*events: tuple[float, str, str, str], now: float = 1000.0) -> list[str]:
    """Return what is told of events at seconds from NOW, of a node and a kind, with a message."""
    told = ChangedLines()
    lines = [
        line.message
        for at, node, kind, message in events
        for line in told.of(
            EventLine(
                at=NOW + at,
                writer="w",
                node=node,
                kind=kind,
                message=f"{node}: {message}" if kind == "wait" else message,
            )
        )
    ]
    return [*lines, *(line.message for line in told.rest(NOW + now))]


def test_changes_are_steps_and_the_waits_that_lasted() -> None:
    assert changes(
        (0.0, "wait", "waiting for its turn"),
        (9.0, "wait", "no longer waiting"),
        (9.0, "step", "upgrade begins"),
        (9.0, "command", "swap 1.1 started"),
        (9.0, "wait", "waiting for jobs"),
        (69.0, "wait", "waiting for the driver"),
        (70.0, "facts", "changed: gpus"),
        (75.0, "wait", "no longer waiting"),
        (80.0, "evidence", "driver 580 is proven"),
        (90.0, "wait", "the node is held"),
    ) == [
        "upgrade begins",
        "n: waited 1 min for jobs",
        "driver 580 is proven",
        "n: still waits: the node is held, 15 min 10 s so far",
    ]


def test_a_wait_that_is_told_again_while_it_lasts_is_one_change() -> None:
    assert changes(
        (0.0, "wait", "waiting for pods to leave"),
        (300.0, "wait", "still waits: waiting for pods to leave"),
        (360.0, "wait", "no longer waiting"),
    ) == ["n: waited 6 min for pods to leave"]


def test_the_same_of_several_nodes_is_one_line() -> None:
    nodes = [f"node-{number}" for number in (2, 10, 1)]
    assert joined(
        *((0.0, node, "wait", "waiting for its turn") for node in nodes),
        (14.0, "node-2", "wait", "no longer waiting"),
        (15.0, "node-1", "wait", "no longer waiting"),
        (15.0, "node-2", "step", "upgrade begins"),
        (16.0, "node-10", "wait", "no longer waiting"),
        (16.0, "node-1", "step", "upgrade begins"),
        (16.0, "node-10", "step", "upgrade begins"),
        (90.0, "node-10", "step", "upgrade begins"),
    ) == [
        "node-1, node-2, node-10: waited 14 s to 16 s for its turn",
        "node-1, node-2, node-10: upgrade begins",
        "upgrade begins",
    ]
    many = [(0.0, f"node-{number}", "step", "upgrade begins") for number in range(1, 9)]
    assert joined(*many) == ["node-1, node-2, node-3, node-4, node-5 and 3 more: upgrade begins"]


def test_the_end_of_a_log_is_told_once_of_a_failure_and_again_of_another() -> None:
    log = "it exited with code 1, and its log ends: no such device / " + "x" * 200
    cause = f"driver-start: the driver container restarted 3 times ({log}); look"
    short = "driver-start: the driver container restarted 3 times; look"
    other = f"driver-start: the driver container restarted 3 times (another end {log[::-1]})"
    assert changes(
        (0.0, "wait", f"waiting for the driver (the container restarted twice: {log})"),
        (20.0, "step", f"the upgrade fails: {cause}"),
        (20.0, "wait", f"waiting for the agent: {cause}"),
        (40.0, "step", f"failed: {cause}"),
        (40.0, "wait", "no longer waiting"),
        (60.0, "step", f"failed: {other}"),
        (60.0, "wait", f"the upgrade failed: {other}"),
        (61.0, "step", "validated (8 GPUs)"),
        (62.0, "step", "validated (8 GPUs)"),
    ) == [
        f"the upgrade fails: {cause}",
        "n: waited 20 s for the driver (the container restarted twice)",
        f"failed: {short}",
        f"n: waited 20 s for the agent: {short}",
        f"failed: {other}",
        "validated (8 GPUs)",
        "validated (8 GPUs)",
        f"n: still waits: the upgrade failed: {short.removesuffix('; look')}, 15 min 40 s so far",
    ]
    halted = "no retry while the target is halted: 2 failed (a driver trap)"
    assert changes(
        (0.0, "step", f"failed: {cause}"), (1.0, "step", f"waits: {cause}; {halted}")
    ) == [f"failed: {cause}", f"waits: {short}; {halted}"]
    nodes = [
        (at, node, "step", f"{what}: {cause}")
        for at, what in ((0.0, "fails"), (1.0, "failed"))
        for node in ("a", "b")
    ]
    assert joined(*nodes) == [f"a, b: fails: {cause}", f"a, b: failed: {short}"]


def test_the_same_of_several_gpus_is_one_line_that_counts_them() -> None:
    def health(node: str, gpu: int, what: str = "failed: hung") -> tuple[float, str, str, str]:
        return 0.0, node, "health", about_gpu(f"GPU-{gpu}", what)

    assert joined(*(health("node-7", gpu) for gpu in range(8))) == ["node-7: 8 GPUs: failed: hung"]
    assert joined(*(health(node, 0) for node in ("a", "b"))) == ["a, b: 2 GPUs: failed: hung"]
    assert joined(health("a", 0), health("a", 0, "no longer failed"), health("a", 0)) == [
        "GPU GPU-0: failed: hung",
        "GPU GPU-0: no longer failed",
        "GPU GPU-0: failed: hung",
    ]


def test_no_line_is_moved_before_another_of_its_node_or_of_a_pool() -> None:
    assert joined(
        (0.0, "a", "step", "begins"),
        (1.0, "b", "step", "stops"),
        (2.0, "b", "step", "begins"),
    ) == ["begins", "stops", "begins"]
    assert joined(
        (0.0, "a", "step", "begins"),
        (1.0, "", "rollout", "gpus: halted"),
        (2.0, "b", "step", "begins"),
    ) == ["begins", "gpus: halted", "begins"]


def test_waits_that_have_only_begun_and_plans_that_were_asked_for_are_no_changes() -> None:
    assert joined(
        (0.0, "", "plan", "gpus: a plan was asked for"),
        (0.0, "a", "wait", "waiting for jobs"),
        (5.0, "b", "wait", "waiting for jobs"),
        (11.0, "c", "wait", "waiting for jobs"),
        now=16.0,
    ) == ["a, b: still waits for jobs, 11 s to 16 s so far"]


def test_lines_are_in_the_order_of_the_times_that_are_printed() -> None:
    told = ChangedLines()
    lines = [
        line
        for at, node, kind, message in (
            (0.0, "a", "wait", "a: waiting for jobs"),
            (13.0, "b", "step", "begins"),
            (11.0, "c", "command", "swap"),
            (12.0, "c", "evidence", "is proven"),
            (11.0, "b", "evidence", "is proven, too"),
            (10.0, "", "rollout", "gpus: halted"),
        )
        for line in told.of(
            EventLine(at=NOW + at, writer="w", node=node, kind=kind, message=message)
        )
    ]
    lines += told.rest(NOW + 30)
    assert [(line.at - NOW, line.message) for line in lines] == [
        (12.0, "is proven"),
        (13.0, "begins"),
        (11.0, "is proven, too"),
        (10.0, "gpus: halted"),
        (30.0, "a: still waits for jobs, 30 s so far"),
    ]


def test_the_end_of_a_wait_is_not_told_after_the_step_that_ended_it() -> None:
    followed = FollowedEvents()
    told = [
        message
        for kind, message in (
            ("wait", "n: waiting for validation"),
            ("step", "back in service"),
            ("wait", "n: no longer waiting"),
            ("wait", "n: waiting for jobs"),
            ("wait", "n: no longer waiting"),
        )
        if followed.is_told(EventLine(at=NOW, writer="w", node="n", kind=kind, message=message))
    ]
    assert told == [
        "n: waiting for validation",
        "back in service",
        "n: waiting for jobs",
        "n: no longer waiting",
    ]


def test_the_audit_is_a_table_on_a_screen_of_80_columns() -> None:
    invariants = [
        AuditedInvariant(
            name=name, judged=True, violations=0, not_judged="--audit-log; journals (--nats)"
        )
        for name in TITLES
    ]
    lines = text(audit_view(Audit(invariants=tuple(invariants), sources=()), width=80), 80)
    assert lines.splitlines()[0].split() == ["PROMISE", "VERDICT", "NOT", "JUDGED", "WITHOUT"]
    assert len(lines.splitlines()) == 1 + 2 * len(TITLES)


def test_an_event_is_one_line_that_names_its_node_once() -> None:
    event = EventLine(
        at=NOW, writer="scheduler", node="node-1", kind="step", message="drain begins"
    )
    assert text(event_line(event), 80) == "2027-01-15 08:00:00Z  scheduler  node-1: drain begins"
    named = EventLine(at=NOW, writer="scheduler", node="node-1", kind="x", message="node-1 is done")
    assert text(event_line(named), 80) == "2027-01-15 08:00:00Z  scheduler  node-1 is done"
