"""The bytes of version 1 never change, and every kind has a golden file."""

import json
from typing import Any

import msgspec
import pytest

from libs.contracts import commands, events, queries, reports, subjects
from libs.contracts.catalogue import FORMS, PLANES
from libs.contracts.telemetry import Batch, GpuSample, InstanceSample
from tests.contracts import goldens, structs
from tests.contracts.goldens import EXAMPLES, REQUIRED, form_of, path_of


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_golden_file_is_decoded_and_encoded_to_the_same_bytes(name: str) -> None:
    form, data, example = form_of(name), path_of(name).read_bytes(), EXAMPLES[name]
    written = goldens.write(form, example.message)
    if form.body:
        assert type(example.body) is form.body
        assert msgspec.json.encode(example.body) == bytes(example.message.body)
    if form.is_binary:
        # Arrays also encode fields at their defaults; new fields are appended at the end.
        before, after = msgspec.msgpack.decode(data), msgspec.msgpack.decode(written)
        data = msgspec.msgpack.encode(_with_new_fields(before, after))
    assert written == data


def _with_new_fields(before: Any, after: Any) -> Any:
    """Return `before` with what the arrays of `after` have beyond its own."""
    if not isinstance(before, list) or not isinstance(after, list):
        return before
    grown = [_with_new_fields(*pair) for pair in zip(before, after, strict=False)]
    return [*grown, *after[len(before) :]]


@pytest.mark.parametrize("form", [form for form in FORMS if form.body], ids=lambda form: form.name)
def test_the_kind_of_an_envelope_follows_from_its_body(form: Any) -> None:
    assert EXAMPLES[form.name].message.kind == form.kind


def test_every_form_has_a_golden_file() -> None:
    assert {form.name for form in FORMS} <= EXAMPLES.keys()


def test_telemetry_fields_keep_their_positions() -> None:
    """Arrays name no fields, so that a changed order would still encode to the same bytes."""
    assert EXAMPLES["telemetry"].message == BATCH
    assert EXAMPLES["telemetry@xids"].message == msgspec.structs.replace(BATCH, xids=3)
    grown = msgspec.structs.replace(SAMPLE, **ADDED)
    assert EXAMPLES["telemetry@errors"].message == msgspec.structs.replace(BATCH, gpus=[grown])
    grown = msgspec.structs.replace(grown, **ADDED_WITH_INSTANCES)
    assert EXAMPLES["telemetry@instances"].message == msgspec.structs.replace(BATCH, gpus=[grown])


SAMPLE = GpuSample(
    uuid="GPU-5d0a1c9e-7f3b-4a21-b9d4-1e2f3a4b5c6d",
    index=1,
    pci="00000000:17:00.0",
    sm_clock_mhz=1980,
    memory_clock_mhz=2619,
    memory_temperature_c=58,
    temperature_c=51,
    power_w=412.5,
    energy_mj=9_876_543_210,
    pcie_replays=2,
    gpu_utilization=97,
    memory_utilization=61,
    encoder_utilization=3,
    decoder_utilization=4,
    xid=79,
    framebuffer_free_mib=1_024,
    framebuffer_used_mib=79_870,
    framebuffer_reserved_mib=665,
    nvlink_mb_per_s=120_500,
    remapped_uncorrectable=1,
    remapped_correctable=2,
    remap_failure=1,
    graphics_active=0.75,
    tensor_active=0.5,
    dram_active=0.25,
    pcie_tx_bytes_per_s=1_200_000,
    pcie_rx_bytes_per_s=3_400_000,
    ecc_volatile_uncorrected=5,
    clock_reasons=4,
    pod_uid="0f5b7a0e-3333-4c1d-8f2e-0a1b2c3d4e03",
)

ADDED_WITH_INSTANCES: dict[str, Any] = {
    "minor": 3,
    "model": "NVIDIA H100 80GB HBM3",
    "integer_active": 0.0625,
    "tensor_dfma_active": 0.125,
    "tensor_hmma_active": 0.1875,
    "tensor_imma_active": 0.3125,
    "nvlink_tx_bytes_per_s": 22_000,
    "nvlink_rx_bytes_per_s": 23_000,
    "nvlink_first_mb_per_s": 24,
    "power_management_limit_w": 650.0,
    "video_clock_mhz": 1545,
    "pcie_link_generation": 5,
    "pcie_link_width": 16,
    "instances": (
        InstanceSample(
            gpu_instance=9,
            profile="1g.10gb",
            framebuffer_free_mib=9_000,
            framebuffer_used_mib=984,
            framebuffer_reserved_mib=1,
            graphics_active=0.01,
            tensor_active=0.02,
            dram_active=0.03,
            sm_active=0.04,
            sm_occupancy=0.05,
            fp64_active=0.06,
            fp32_active=0.07,
            fp16_active=0.08,
            integer_active=0.09,
            tensor_dfma_active=0.1,
            tensor_hmma_active=0.11,
            tensor_imma_active=0.12,
        ),
    ),
}

ADDED: dict[str, Any] = {
    "ecc_volatile_corrected": 6,
    "ecc_aggregate_corrected": 7,
    "ecc_aggregate_uncorrected": 8,
    "retired_corrected": 9,
    "retired_uncorrected": 10,
    "retired_pending": 11,
    "remap_pending": 1,
    "power_limit_w": 700.0,
    "performance_state": 2,
    "power_violation_ns": 12_000,
    "thermal_violation_ns": 13_000,
    "sync_boost_violation_ns": 14_000,
    "board_limit_violation_ns": 15_000,
    "low_utilization_violation_ns": 16_000,
    "reliability_violation_ns": 17_000,
    "nvlink_flit_errors": 18,
    "nvlink_data_errors": 19,
    "nvlink_replay_errors": 20,
    "nvlink_recovery_errors": 21,
    "vgpu_licensed": 1,
    "sm_active": 0.625,
    "sm_occupancy": 0.375,
    "fp64_active": 0.0625,
    "fp32_active": 0.3125,
    "fp16_active": 0.1875,
}
"""The fields that were appended to a sample first."""

BATCH = Batch(
    v=1,
    node="gpu-1.rack-7.example",
    node_uid="2b7c1c52-9f0e-4b47-8d4e-5a3c90c1a001",
    boot_id="6a1d2f0b-3c44-4d1e-9a57-0e6f5b7c8d90",
    run="r-3f9c",
    seq=1441,
    at=1793530805.0,
    driver_version="580.95.05",
    gpus=[SAMPLE],
)


@pytest.mark.parametrize(
    ("words", "bodies"),
    [
        (commands.CommandKind, commands.COMMANDS.kinds),
        (commands.CheckKind, commands.CHECKS.kinds),
        (reports.StateKind, reports.REPORTS.kinds),
        (events.EventKind, events.EVENTS.kinds),
        (queries.QueryVerb, queries.QUERIES),
    ],
)
def test_every_kind_has_its_own_body_type(words: Any, bodies: dict[Any, Any]) -> None:
    assert set(bodies) == set(words)
    assert len(set(bodies.values())) == len(bodies)


def test_the_catalogue_lists_every_plane_and_kind_once() -> None:
    assert [plane.subject for plane in PLANES] == list(subjects.PLANES)
    names = [form.name for form in FORMS]
    assert len(set(names)) == len(names)
    kinds = {plane.name: [form.kind for form in plane.forms if form.body] for plane in PLANES}
    assert set(kinds["command"]) == {kind.value for kind in commands.CommandKind}
    assert set(kinds["check"]) == {kind.value for kind in commands.CheckKind}
    assert set(kinds["state"]) == {kind.value for kind in reports.StateKind}
    assert set(kinds["event"]) == {kind.value for kind in events.EventKind}


def test_the_examples_set_every_field() -> None:
    filled: dict[str, set[str]] = {}
    for message, body in EXAMPLES.values():
        for struct in (*structs.instances(message), *structs.instances(body)):
            fields_set = filled.setdefault(structs.name_of(type(struct)), set())
            for field in msgspec.structs.fields(struct):
                if getattr(struct, field.name) not in (structs.default_of(field), "", ()):
                    fields_set.add(field.name)
    empty = {
        structs.name_of(struct): sorted(
            set(struct.__struct_fields__) - filled.get(structs.name_of(struct), set())
        )
        for struct in structs.structs()
    }
    assert {name: fields for name, fields in empty.items() if fields} == {}


def test_new_fields_have_defaults() -> None:
    frozen = json.loads(REQUIRED.read_bytes())
    now = {
        structs.name_of(struct): [
            field.encode_name for field in msgspec.structs.fields(struct) if field.required
        ]
        for struct in structs.structs()
    }
    assert now == frozen, (
        "a field that is new needs a default, and one that was required stays so: older readers"
        f" would refuse the message. Only a new struct may be added to {REQUIRED.name}"
    )
