"""What each rule makes of one reading, and when a finding begins and ends."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.contracts.facts import Gpu
from libs.contracts.gpus import FabricState, GpuProblem, RecoveryAction
from libs.contracts.health import GpuHealth, Health, HealthRule, HealthState
from libs.contracts.message import decode, encode
from libs.contracts.telemetry import GpuSample
from libs.health.node import MAX_GPUS, Records, Sweep, after_sweep, node_health
from libs.health.record import (
    MAX_FINDINGS,
    MAX_XIDS,
    WARNING,
    XID_END,
    Moment,
    durable,
    resumed,
)
from libs.health.rules import CONDITIONS
from libs.health.xids import XIDS, meaning
from tests.builders.gpus import gpu

OK, DEGRADED, FAILED = HealthState.OK, HealthState.DEGRADED, HealthState.FAILED
GPU = gpu()
TO_BE_FREED = (
    *(RecoveryAction.GPU_RESET, RecoveryAction.NODE_REBOOT, RecoveryAction.DRAIN_AND_RESET),
    *(RecoveryAction.RECOVER_IMEX_DOMAIN, RecoveryAction.BUS_RESET, RecoveryAction.SYSTEM_REBOOT),
)
"""What no job can go on beside."""
UNUSABLE = (
    *(GpuProblem.LOST, GpuProblem.RESET_REQUIRED, GpuProblem.INSUFFICIENT_POWER),
    *(GpuProblem.UNIDENTIFIED, GpuProblem("later")),
)
SAYS_NONE = gpu(recovery=RecoveryAction.NONE)


class Node:
    """A node with one GPU, or those that a test gives."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.records: Records = ()

    def sweep(
        self, *gpus: Gpu, xids: Sequence[int] = (), wait: float = 0.0, **sample: Any
    ) -> GpuHealth:
        found = gpus or (GPU,)
        samples = [GpuSample(each.uuid, each.index, each.pci, **sample) for each in found]
        codes = {found[0].uuid: xids}
        return self.add(Sweep(gpus=found, samples=samples, xids=codes), wait=wait)

    def add(self, sweep: Sweep, *, wait: float = 0.0) -> GpuHealth:
        self.time += wait
        at = Moment(self.time + 1e9, self.time)
        self.records = after_sweep(self.records, sweep, at)
        return node_health(self.records).gpus[0]

    def restart(self) -> None:
        """Continue as another process would."""
        self.time += 5.0
        at = Moment(self.time + 1e9, self.time)
        self.records = tuple(resumed(durable(record), at) for record in self.records)

    def lasts(self, *gpus: Gpu, seconds: float, **sample: Any) -> list[HealthState]:
        """Sweep each second; return the states."""
        return [self.sweep(*gpus, wait=1.0, **sample).state for _ in range(int(seconds))]


@pytest.mark.parametrize(
    ("gpu", "sample", "rule", "state"),
    [
        *((gpu(recovery=each), {}, "recovery-action", FAILED) for each in TO_BE_FREED),
        (gpu(recovery=RecoveryAction.DRAIN_P2P), {}, "recovery-action", DEGRADED),
        (gpu(recovery=RecoveryAction.UNKNOWN_ACTION), {}, "recovery-action", DEGRADED),
        (gpu(hung=True), {}, "unusable", FAILED),
        (gpu(problem=GpuProblem.HUNG, hung=True), {}, "unusable", FAILED),
        *((gpu(problem=each), {}, "unusable", FAILED) for each in UNUSABLE),
        (GPU, {"ecc_volatile_uncorrected": 1}, "ecc", DEGRADED),
        (GPU, {"remap_failure": 1}, "row-remap", FAILED),
        (GPU, {"remap_pending": 1}, "row-remap", DEGRADED),
        (GPU, {"retired_pending": 2}, "row-remap", DEGRADED),
    ],
)
def test_a_reading_breaks_its_rule_at_once(
    gpu: Gpu, sample: dict[str, Any], rule: str, state: HealthState
) -> None:
    health = Node().sweep(gpu, **sample)
    assert health.state is state
    (finding,) = health.findings
    assert (finding.rule, finding.state) == (HealthRule(rule), state)
    assert finding.message
    assert finding.remedy


@pytest.mark.parametrize(
    ("gpu", "sample"),
    [
        (GPU, {}),
        (SAYS_NONE, {}),
        (gpu(nvlinks=18, nvlinks_down=(4,)), {}),
        (gpu(fabric_state=FabricState.IN_PROGRESS), {}),
        (GPU, {"ecc_volatile_corrected": 9, "ecc_aggregate_uncorrected": 3}),
        (GPU, {"remapped_uncorrectable": 2, "retired_uncorrected": 2}),
        (GPU, {"clock_reasons": 0x4 | 0x1 | 0x10}),
    ],
)
def test_a_reading_that_breaks_no_rule_is_ok_however_long(gpu: Gpu, sample: dict[str, int]) -> None:
    assert set(Node().lasts(gpu, seconds=100, **sample)) == {OK}


@pytest.mark.parametrize(
    ("reasons", "rule"), [(0x40, "thermal"), (0x20, "thermal"), (0x80, "power")]
)
def test_clocks_are_reduced_for_a_while_before_that_counts_and_after(
    reasons: int, rule: str
) -> None:
    node = Node()
    assert node.lasts(seconds=29, clock_reasons=reasons) == [OK] * 29
    assert node.lasts(seconds=1, clock_reasons=0) == [OK]
    assert node.lasts(seconds=32, clock_reasons=reasons) == [OK] * 30 + [DEGRADED] * 2
    assert node.sweep(clock_reasons=reasons).findings[0].rule == rule
    assert node.lasts(seconds=59, clock_reasons=0) == [DEGRADED] * 59
    assert node.lasts(seconds=1, clock_reasons=reasons) == [DEGRADED]
    assert node.lasts(seconds=62, clock_reasons=0) == [DEGRADED] * 60 + [OK] * 2


def test_a_link_that_was_active_and_went_down_counts_and_one_that_never_was_does_not() -> None:
    node = Node()
    linked = gpu(nvlinks=6, nvlinks_down=(4, 5))
    assert node.lasts(linked, seconds=60) == [OK] * 60
    down = replace(linked, nvlinks_down=(0, 4, 5))
    assert node.lasts(down, seconds=12) == [OK] * 10 + [DEGRADED] * 2
    assert node.sweep(down).findings[0].message == "NVLinks went down: 0"
    assert node.lasts(linked, seconds=32) == [DEGRADED] * 30 + [OK] * 2


def test_a_fabric_that_cannot_be_joined_fails_the_gpu() -> None:
    apart = gpu(fabric_state=FabricState.FAILED)
    assert Node().lasts(apart, seconds=12) == [OK] * 10 + [FAILED] * 2


@pytest.mark.parametrize("value", [None, -1, 2**63, 2, True, 1.0, float("nan"), "1"])
def test_a_value_that_is_absent_or_cannot_be_true_changes_nothing(value: Any) -> None:
    node = Node()
    sample = {"remap_failure": value}
    assert node.sweep(**sample).state is OK
    assert node.sweep(remap_failure=1).state is FAILED
    assert set(node.lasts(seconds=600, **sample)) == {FAILED}
    assert node.lasts(seconds=32, remap_failure=0)[-1] is OK


@pytest.mark.parametrize("code", sorted(XIDS))
def test_an_xid_means_what_the_table_says(code: int) -> None:
    health = Node().sweep(xids=[code])
    assert health.state is XIDS[code].state
    assert [each.xid for each in health.findings] == ([code] if health.state is not OK else [])


@pytest.mark.parametrize(
    ("state", "codes"),
    [
        (OK, [5, 13, 31, 43, 45, 63, 68, 92, 154]),
        (FAILED, [48, 64, 74, 79, 95, 109, 119, 120, 140, 155, 156]),
        (DEGRADED, [94, *range(144, 151), 173, 99_999]),
    ],
    ids=["of applications, notices and unused numbers", "that fail it", "that degrade it"],
)
def test_xids_say_this_against_the_gpu(state: HealthState, codes: list[int]) -> None:
    assert {code: meaning(code).state for code in codes} == dict.fromkeys(codes, state)


def test_a_contained_memory_error_degrades_the_gpu_and_what_the_driver_asks_for_fails_it() -> None:
    node = Node()
    node.sweep(SAYS_NONE)
    after: dict[str, Any] = {"ecc_volatile_uncorrected": 1, "remap_pending": 1}
    assert node.sweep(SAYS_NONE, xids=[94], **after).state is DEGRADED
    assert set(node.lasts(SAYS_NONE, seconds=600, **after)) == {DEGRADED}
    asks = gpu(recovery=RecoveryAction.GPU_RESET)
    assert node.sweep(asks, **after).state is FAILED


def test_an_xid_stays_while_the_driver_asks_for_nothing_and_the_gpu_never_left() -> None:
    node = Node()
    node.sweep(SAYS_NONE, xids=[48])
    assert set(node.lasts(SAYS_NONE, seconds=600)) == {FAILED}


def test_an_xid_ends_when_the_gpu_is_back_and_its_driver_asks_for_nothing() -> None:
    node = Node()
    lost = replace(SAYS_NONE, problem=GpuProblem.LOST)
    assert node.sweep(lost, xids=[79]).state is FAILED
    assert node.lasts(lost, seconds=60) == [FAILED] * 60
    assert node.lasts(SAYS_NONE, seconds=29) == [FAILED] * 29
    assert node.lasts(lost, seconds=1) == [FAILED]
    assert node.lasts(SAYS_NONE, seconds=32) == [FAILED] * 30 + [OK] * 2


def test_an_xid_ends_when_what_the_driver_asked_for_was_done() -> None:
    node = Node()
    asks = gpu(recovery=RecoveryAction.GPU_RESET)
    node.sweep(asks, xids=[119, 154])
    assert node.lasts(asks, seconds=60) == [FAILED] * 60
    assert node.lasts(SAYS_NONE, seconds=32) == [FAILED] * 30 + [OK] * 2


def test_where_the_driver_names_no_action_a_hang_that_ends_heals_no_xid_and_a_reset_does() -> None:
    node = Node()
    hung = gpu(problem=GpuProblem.HUNG, hung=True)
    node.sweep(hung, xids=[119])
    assert set(node.lasts(GPU, seconds=600)) == {FAILED}
    node.lasts(gpu(problem=GpuProblem.RESET_REQUIRED), seconds=1)
    assert node.lasts(GPU, seconds=32)[-2:] == [OK, OK]


def test_volatile_errors_that_fall_show_a_reset() -> None:
    node = Node()
    node.sweep(xids=[48], ecc_volatile_uncorrected=2)
    assert set(node.lasts(seconds=60, ecc_volatile_uncorrected=2)) == {FAILED}
    assert node.lasts(seconds=33, ecc_volatile_uncorrected=0)[-1] is OK


def test_a_driver_that_was_loaded_anew_heals_xids() -> None:
    node = Node()
    node.sweep(xids=[95])
    node.add(Sweep(problem=GpuProblem.DRIVER_NOT_LOADED), wait=1.0)
    assert node.lasts(seconds=33)[-1] is OK
    node.sweep(xids=[95])
    assert set(node.lasts(seconds=60)) == {FAILED}
    node.add(Sweep(gpus=[GPU], reloaded=True), wait=1.0)
    assert node.lasts(seconds=33)[-1] is OK


def test_another_xid_after_the_return_must_end_of_its_own() -> None:
    node = Node()
    node.sweep(replace(SAYS_NONE, problem=GpuProblem.LOST), xids=[79])
    node.lasts(SAYS_NONE, seconds=10)
    node.sweep(SAYS_NONE, xids=[48])
    assert set(node.lasts(SAYS_NONE, seconds=600)) == {FAILED}


def test_an_xid_that_degrades_ends_an_hour_after_the_last_one() -> None:
    node = Node()
    assert node.sweep(SAYS_NONE, xids=[94]).state is DEGRADED
    assert node.sweep(SAYS_NONE, xids=[94], wait=WARNING - 1).state is DEGRADED
    assert node.sweep(SAYS_NONE, wait=WARNING - 1).state is DEGRADED
    assert node.sweep(SAYS_NONE, wait=1.0).state is OK


def test_a_restart_of_the_agent_forgets_no_finding_and_begins_its_times_anew() -> None:
    node = Node()
    node.sweep(SAYS_NONE, xids=[48, 94], remap_pending=1)
    node.lasts(seconds=33, clock_reasons=0x40)
    before = node_health(node.records)
    assert [each.rule for each in before.gpus[0].findings] == ["xid", "xid", "row-remap", "thermal"]
    node.time += 59.0
    node.restart()
    assert node_health(node.records) == before
    assert node.lasts(SAYS_NONE, seconds=10, clock_reasons=0, remap_pending=0) == [FAILED] * 10
    assert len(node_health(node.records).gpus[0].findings) == 4


def test_a_restart_in_the_midst_of_a_return_begins_it_anew() -> None:
    node = Node()
    node.sweep(replace(SAYS_NONE, problem=GpuProblem.LOST), xids=[79])
    node.lasts(SAYS_NONE, seconds=XID_END - 1)
    node.restart()
    assert node.lasts(SAYS_NONE, seconds=32) == [FAILED] * 30 + [OK] * 2


@pytest.mark.parametrize(
    ("problem", "state"),
    [
        (GpuProblem.NO_ANSWER, FAILED),
        (GpuProblem.DRIVER_HUNG, FAILED),
        (GpuProblem.LOST, FAILED),
        (GpuProblem.DRIVER_NOT_LOADED, OK),
        (GpuProblem.NO_LIBRARY, OK),
        (GpuProblem.VERSION_MISMATCH, OK),
        (GpuProblem.NO_PERMISSION, OK),
        (GpuProblem("later"), OK),
        (None, OK),
    ],
)
def test_a_problem_of_nvml_fails_the_gpus_only_where_it_concerns_all_of_them(
    problem: GpuProblem | None, state: HealthState
) -> None:
    node = Node()
    node.sweep()
    assert node.add(Sweep(problem=problem), wait=1.0).state is state
    assert node.lasts(seconds=32)[-1] is OK


def test_a_fatal_error_of_a_switch_degrades_all_gpus_until_they_are_reset() -> None:
    node = Node()
    node.sweep(GPU, gpu(uuid="GPU-1", index=1))
    node.add(Sweep(switch_error=("0000:c1:00", 20034)))
    health = node_health(node.records)
    assert [gpu.state for gpu in health.gpus] == [DEGRADED, DEGRADED]
    assert health.gpus[0].findings[0].rule is HealthRule.NVLINK
    assert "SXid 20034" in health.gpus[0].findings[0].message
    node.restart()
    assert node_health(node.records) == health
    assert set(node.lasts(SAYS_NONE, seconds=600)) == {DEGRADED}
    node.sweep(gpu(problem=GpuProblem.RESET_REQUIRED), wait=1.0)
    assert node.lasts(SAYS_NONE, seconds=32) == [FAILED] * 30 + [OK] * 2


def test_a_gpu_that_hung_from_the_start_is_the_one_that_is_named_later() -> None:
    node = Node()
    unnamed = Gpu(uuid="", index=0, minor=-1, pci="", name="", memory_mib=0, hung=True)
    assert node.sweep(unnamed).state is FAILED
    assert node.sweep().uuid == "GPU-0"
    assert len(node.records) == 1
    assert node.lasts(seconds=32)[-1] is OK


def test_a_gpu_keeps_its_findings_under_another_index() -> None:
    node = Node()
    other = gpu(uuid="GPU-1", index=1)
    node.sweep(GPU, other, xids=[79])
    node.sweep(replace(other, index=0))
    states = {each.uuid: each.state for each in node_health(node.records).gpus}
    assert states == {"GPU-0": FAILED, "GPU-1": OK}


def test_the_worst_finding_is_first_and_their_number_is_limited() -> None:
    node = Node()
    codes = range(100_000, 100_000 + 2 * MAX_XIDS)
    health = node.sweep(gpu(hung=True), xids=[*codes, 48], remap_pending=1)
    assert len(health.findings) == MAX_FINDINGS
    assert [each.rule for each in health.findings[:2]] == [HealthRule.UNUSABLE, HealthRule.XID]
    assert len(node.records[0].xids) == MAX_XIDS


ANYTHING = st.one_of(
    st.none(), st.integers(-2, 3), st.sampled_from([2**63, -(2**63), 0x60, 0x80]), st.floats()
)
READ = ("ecc_volatile_uncorrected", "remap_failure", "remap_pending", "clock_reasons")
SAMPLES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(dict.fromkeys(READ, ANYTHING))
GPUS = st.builds(
    Gpu,
    uuid=st.sampled_from(["", "GPU-0", "GPU-1", "GPU-2"]),
    index=st.integers(0, 2),
    minor=st.just(0),
    pci=st.sampled_from(["", "0000:1b:00.0"]),
    name=st.just("x"),
    memory_mib=st.just(1),
    hung=st.booleans(),
    problem=st.sampled_from([None, None, *GpuProblem]),
    recovery=st.sampled_from([None, *RecoveryAction]),
    fabric_state=st.sampled_from([None, *FabricState]),
    nvlinks=st.sampled_from([0, 4, 2**53 - 1]),
    nvlinks_down=st.sampled_from([(), (1,), (0, 3), (2**53 - 1,)]),
)


@st.composite
def sweeps(draw: st.DrawFn) -> Sweep:
    gpus = draw(st.one_of(st.none(), st.lists(GPUS, max_size=3)))
    samples = [GpuSample(gpu.uuid, gpu.index, gpu.pci, **draw(SAMPLES)) for gpu in gpus or ()]
    return Sweep(
        gpus=gpus,
        samples=samples,
        problem=None if gpus else draw(st.sampled_from([None, *GpuProblem])),
        xids={"GPU-0": draw(st.lists(st.sampled_from([-1, 0, 13, 79, 94, 2**70]), max_size=2))},
        reloaded=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(sweeps(), max_size=12))
def test_no_sweep_however_hostile_is_an_error(found: list[Sweep]) -> None:
    node = Node()
    for sweep in found:
        node.time += 7.0
        node.records = after_sweep(node.records, sweep, Moment(0.0, node.time))
        health = node_health(node.records)
        assert decode(Health, encode(health)) == health
        assert len(health.gpus) <= MAX_GPUS
        for judged in health.gpus:
            worst = [each.state for each in judged.findings]
            assert judged.state is (FAILED if FAILED in worst else DEGRADED if worst else OK)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SAMPLES, st.booleans(), st.floats(0.5, 40.0)), max_size=40))
def test_no_finding_ends_before_its_time(steps: list[tuple[dict[str, Any], bool, float]]) -> None:
    node = Node()
    began: dict[tuple[str, HealthState], float] = {}
    ended: dict[tuple[str, HealthState], float] = {}
    limits = {(each.rule, each.state): each for each in CONDITIONS}
    for sample, hung, wait in steps:
        health = node.sweep(gpu(hung=hung), wait=wait, **sample)
        now = {(each.rule.value, each.state) for each in health.findings}
        for key in now - began.keys():
            began[key] = node.time
            assert node.time - ended.get(key, 0.0) >= limits[HealthRule(key[0]), key[1]].start
        for key in began.keys() - now:
            least = limits[HealthRule(key[0]), key[1]].end
            assert node.time - began.pop(key) >= least
            ended[key] = node.time
