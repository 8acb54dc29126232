"""Parsing: defaults, old spellings, errors, and arbitrary input."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.policy.findings import Finding, Severity, quote_value
from libs.policy.kinds import KINDS
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.common import Metadata
from libs.policy.kinds.nvidia_driver import NvidiaDriver
from libs.policy.kinds.upgrade_policy import PodDeletion
from libs.policy.manifests import ParsedPolicy, parse_manifest
from libs.policy.shapes import is_int_or_percent, scaled_value
from tests.unit.policy.crd_schemas import admit, corpus
from tests.unit.policy.fields import cases, get, minimal_object, put, to_manifest

Object = dict[str, Any]


def cluster_policy(**spec: Any) -> Object:
    obj = minimal_object("ClusterPolicy")
    for path, value in spec.items():
        put(obj["spec"], path.replace("__", "."), value)
    return obj


def finding_lines(result: ParsedPolicy) -> list[tuple[str, str, str]]:
    return [(found.severity.value, found.field, found.value) for found in result.findings]


def test_unset_fields_have_their_effective_values() -> None:
    policy = parse_manifest("ClusterPolicy", minimal_object("ClusterPolicy")).policy
    assert isinstance(policy, ClusterPolicy)
    spec = policy.spec
    enabled = (
        spec.driver,
        spec.toolkit,
        spec.device_plugin,
        spec.dcgm_exporter,
        spec.gfd,
    )
    assert [part.enabled for part in (*enabled, spec.mig_manager, spec.cdi)] == [True] * 7
    disabled = (spec.node_status_exporter, spec.vfio_manager, spec.vgpu_manager, spec.psa, spec.gds)
    virtual_machine_parts = (
        spec.vgpu_device_manager,
        spec.sandbox_device_plugin,
        spec.kata_sandbox_device_plugin,
    )
    other_parts = (spec.sandbox_workloads, spec.driver.rdma, spec.gdrcopy, spec.cc_manager)
    # The GPU Operator's default is true, for a host engine that does not exist here.
    other_parts += (spec.dcgm,)
    assert [part.enabled for part in (*disabled, *virtual_machine_parts, *other_parts)] == [
        False
    ] * 13
    assert not spec.driver.use_nvidia_driver_crd
    assert not spec.driver.use_precompiled
    assert not spec.dcgm_exporter.service_monitor.enabled
    assert not spec.cdi.nri_plugin_enabled
    assert not spec.driver.licensing_config.nls_enabled


def test_auto_upgrade_is_off_by_default_for_cluster_policies_and_on_for_drivers() -> None:
    for extra in ({}, {"upgradePolicy": {}}, {"upgradePolicy": None}):
        cluster = parse_manifest("ClusterPolicy", cluster_policy(driver=extra)).policy
        assert isinstance(cluster, ClusterPolicy)
        assert cluster.spec.driver.upgrade_policy.auto_upgrade is False
        obj = minimal_object("NVIDIADriver")
        obj["spec"] |= extra
        pool = parse_manifest("NVIDIADriver", obj).policy
        assert isinstance(pool, NvidiaDriver)
        assert pool.spec.upgrade_policy.auto_upgrade is True
        assert pool.spec.licensing_config.nls_enabled is True
        for policy in (cluster.spec.driver.upgrade_policy, pool.spec.upgrade_policy):
            assert policy.pod_deletion == PodDeletion()
            assert (policy.max_parallel_upgrades, policy.max_unavailable) == (1, "25%")
            assert (policy.pod_deletion.timeout_seconds, policy.drain.timeout_seconds) == (300, 300)
            assert policy.wait_for_completion.timeout_seconds == 0


def test_the_old_spelling_of_pod_deletion_is_used_with_a_warning() -> None:
    deletion_spec = {"force": True, "timeoutSeconds": 9}
    obj = cluster_policy(driver={"upgradePolicy": {"gpuPodDeletion": deletion_spec}})
    result = parse_manifest("ClusterPolicy", obj)
    assert isinstance(result.policy, ClusterPolicy)
    deletion = result.policy.spec.driver.upgrade_policy.pod_deletion
    assert deletion == PodDeletion(force=True, timeout_seconds=9)
    field = "spec.driver.upgradePolicy.gpuPodDeletion"
    assert finding_lines(result) == [("warning", field, "an object")]
    upgrade = to_manifest(result.policy)["spec"]["driver"]["upgradePolicy"]
    assert upgrade == {"podDeletion": deletion_spec}


def test_the_new_spelling_takes_precedence() -> None:
    both = {"gpuPodDeletion": {"force": True}, "podDeletion": {"timeoutSeconds": 9}}
    result = parse_manifest("ClusterPolicy", cluster_policy(driver={"upgradePolicy": both}))
    assert isinstance(result.policy, ClusterPolicy)
    deletion = result.policy.spec.driver.upgrade_policy.pod_deletion
    assert deletion == PodDeletion(timeout_seconds=9)
    assert [found.problem for found in result.findings] == [
        "is an old spelling of podDeletion, which is also set and takes precedence"
    ]


def test_all_errors_are_reported_at_once_with_field_value_and_remedy() -> None:
    obj = cluster_policy(
        driver={
            "enabled": "yes",
            "kernelModuleType": "free",
            "env": [{"name": "A", "value": 1}, {"value": "x"}, 7],
            "upgradePolicy": {"maxUnavailable": "half", "maxParallelUpgrades": -1},
            "startupProbe": {"periodSeconds": 0, "failureThreshold": 2**31},
            "verison": "1",
        },
        mig=[],
        daemonsets__labels={"a": 1},
        daemonsets__rollingUpdate={"maxUnavailable": "x"},
    )
    result = parse_manifest("ClusterPolicy", obj)
    assert sorted(finding_lines(result)) == [
        ("error", "spec.daemonsets.labels[a]", "1"),
        ("error", "spec.daemonsets.rollingUpdate.maxUnavailable", '"x"'),
        ("error", "spec.driver.enabled", '"yes"'),
        ("error", "spec.driver.env[0].value", "1"),
        ("error", "spec.driver.env[1].name", ""),
        ("error", "spec.driver.env[2]", "7"),
        ("error", "spec.driver.kernelModuleType", '"free"'),
        ("error", "spec.driver.startupProbe.failureThreshold", "2147483648"),
        ("error", "spec.driver.startupProbe.periodSeconds", "0"),
        ("error", "spec.driver.upgradePolicy.maxParallelUpgrades", "-1"),
        ("error", "spec.driver.upgradePolicy.maxUnavailable", '"half"'),
        ("error", "spec.mig", "a list"),
        ("warning", "spec.driver.verison", '"1"'),
    ]
    assert all(found.remedy for found in result.findings)
    assert len(result.errors) == 12


def test_the_text_of_a_finding_has_field_value_problem_and_remedy() -> None:
    (found,) = parse_manifest("ClusterPolicy", cluster_policy(driver={"enabled": "yes"})).findings
    assert str(found) == (
        'spec.driver.enabled ("yes") is not true or false: write true or false, without quotes'
    )


def test_sandbox_switches_are_notes_unless_sandbox_workloads_are_enabled() -> None:
    obj = cluster_policy(vfioManager={"enabled": True})
    assert finding_lines(parse_manifest("ClusterPolicy", obj)) == [
        ("note", "spec.vfioManager.enabled", "true")
    ]
    obj["spec"]["sandboxWorkloads"] = {"enabled": True}
    assert finding_lines(parse_manifest("ClusterPolicy", obj)) == [
        ("warning", "spec.sandboxWorkloads.enabled", "true"),
        ("warning", "spec.vfioManager.enabled", "true"),
    ]


@pytest.mark.parametrize(
    ("kind", "obj", "field"),
    [
        ("Nothing", {}, "kind"),
        ("ClusterPolicy", None, "ClusterPolicy"),
        ("ClusterPolicy", [1], "ClusterPolicy"),
        ("GPUClusterPolicy", {"kind": "Pod", "spec": {"driver": {"version": "1"}}}, "kind"),
        ("GPUClusterPolicy", {"apiVersion": 1, "spec": {"driver": {"version": "1"}}}, "apiVersion"),
        ("Rollout", {"spec": 3}, "spec"),
    ],
)
def test_manifests_of_another_kind_are_errors(kind: str, obj: Any, field: str) -> None:
    assert [found.field for found in parse_manifest(kind, obj).errors] == [field]


def test_invalid_metadata_fields_are_ignored() -> None:
    metadata = {
        "name": "a",
        "uid": "u",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-02T00:00:00Z",
        "labels": {"x": "y"},
    }
    policy = parse_manifest("Rollout", {"metadata": metadata}).policy
    assert policy is not None
    parsed_metadata = policy.metadata
    assert (parsed_metadata.name, parsed_metadata.uid, parsed_metadata.generation) == ("a", "u", 3)
    assert parsed_metadata.creation_timestamp == "2026-01-01T00:00:00Z"
    assert parsed_metadata.deletion_timestamp == "2026-01-02T00:00:00Z"
    for broken in (None, [], {"name": 1, "uid": None, "generation": "x"}):
        policy = parse_manifest("Rollout", {"metadata": broken}).policy
        assert policy is not None
        assert policy.metadata == Metadata()


def test_values_in_findings_are_short_and_printable() -> None:
    values = ["\ud800\n" * 99, 10**5000, -(2**70), None, {"a": 1}, float("nan"), b"x"]
    texts = [quote_value(value) for value in values]
    assert texts[1:] == [
        "a number of more than 64 bits",
        "a number of more than 64 bits",
        "null",
        "an object",
        "nan",
        "a bytes",
    ]
    assert texts[0] == '"' + "??" * 39 + '?…"'


@pytest.mark.parametrize(
    ("amount", "total", "part"),
    [(3, 10, 3), ("3", 10, 3), ("25%", 10, 3), ("25%", 8, 2), ("0%", 9, 0), ("100%", 7, 7)],
)
def test_a_number_or_percentage_is_scaled_to_its_total(
    amount: int | str, total: int, part: int
) -> None:
    assert is_int_or_percent(amount)
    assert scaled_value(amount, total) == part


@pytest.mark.parametrize("amount", ["", "x", "-1", -1, "101%", "1.5", "1 %", "1%%", "٣"])
def test_what_is_no_number_or_percentage_is_refused(amount: int | str) -> None:
    assert not is_int_or_percent(amount)


@pytest.mark.parametrize(("name", "obj"), corpus(), ids=lambda value: str(value)[:60])
def test_the_corpus_parses_without_errors_and_round_trips(name: str, obj: Object) -> None:
    result = parse_manifest(obj["kind"], admit(obj))
    assert result.errors == (), name
    assert result.policy is not None
    manifest = to_manifest(result.policy)
    admit(manifest)
    assert parse_manifest(obj["kind"], manifest).policy == result.policy


# Arbitrary input.

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["", "25%", "auto", "gpu", "\ud800", "true", 2**63, -(2**80)]),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3)
    ),
    max_leaves=8,
)
_KINDS = st.sampled_from(sorted(KINDS))
_CASES = list(cases())
_PATHS = {
    kind: sorted(
        {
            case.path.rsplit(".", above)[0]
            for case in _CASES
            for above in range(4)
            if case.kind == kind
        }
    )
    for kind in KINDS
}


@given(_KINDS, _VALUES)
def test_a_spec_of_any_value_does_not_raise(kind: str, value: Any) -> None:
    for obj in (value, {"metadata": value, "spec": value}, {"spec": {"driver": value}}):
        _check_parsed(parse_manifest(kind, obj))


@given(_KINDS, st.data())
def test_a_field_of_any_value_does_not_raise(kind: str, data: st.DataObject) -> None:
    obj = minimal_object(kind)
    for path in data.draw(st.lists(st.sampled_from(_PATHS[kind]), max_size=6)):
        if isinstance(get(obj["spec"], path.rpartition(".")[0] or "x"), dict) or "." not in path:
            put(obj["spec"], path, data.draw(_VALUES))
    _check_parsed(parse_manifest(kind, obj))


def _check_parsed(result: ParsedPolicy) -> None:
    """Check that findings can be encoded and have a field."""
    encoded = msgspec.json.encode(result.findings)
    assert msgspec.json.decode(encoded, type=tuple[Finding, ...]) == result.findings
    assert all(found.field and found.problem for found in result.findings)
    assert all(found.remedy for found in result.findings if found.severity is Severity.ERROR)
    if result.policy is not None:
        msgspec.to_builtins(result.policy)


@settings(max_examples=150)
@given(_KINDS, st.data())
def test_a_policy_is_parsed_as_it_was_written(kind: str, data: st.DataObject) -> None:
    obj = minimal_object(kind)
    of_kind = [case for case in _CASES if case.kind == kind]
    for case in data.draw(st.lists(st.sampled_from(of_kind), max_size=12)):
        put(obj["spec"], case.path, case.value)
    policy = parse_manifest(kind, obj).policy
    assert policy is not None
    assert parse_manifest(kind, to_manifest(policy)).policy == policy
