"""What NVML returned is made fit for a message, or refused and complained about."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.contracts import message
from libs.contracts.facts import Facts, Gpu, Mig
from libs.contracts.gpu_forms import Complaints
from libs.contracts.gpus import FabricState, GpuProblem, RecoveryAction
from libs.host.gpus import clean
from libs.host.gpus.clean import Raw
from tests.builders.gpus import gpu

UUID = b"GPU-5d0a1c9e-7f3b-4a21-b9d4-1e2f3a4b5c6d"
GOOD: Raw = {
    "uuid": UUID,
    "pci": b"00000000:C1:00.0",
    "name": b"NVIDIA H100",
    "serial": b"165",
    "minor": 3,
    "memory": 81559 << 20,
    "compute_capability": (9, 0),
}


def cleaned(raw: Raw) -> tuple[Gpu, set[str]]:
    complaints = Complaints()
    return clean.gpu(2, raw, complaints), set(complaints.found)


def test_a_good_gpu_is_described_without_complaint() -> None:
    assert cleaned(GOOD) == (
        Gpu(
            uuid=UUID.decode(),
            index=2,
            minor=3,
            pci="00000000:C1:00.0",
            name="NVIDIA H100",
            memory_mib=81559,
            compute_capability=(9, 0),
            serial="165",
        ),
        set(),
    )


def test_a_gpu_of_which_nothing_is_known_is_not_identified() -> None:
    gpu, complaints = cleaned({})
    unknown = Gpu(uuid="", index=2, minor=-1, pci="", name="", memory_mib=0)
    assert gpu == replace(unknown, problem=GpuProblem.UNIDENTIFIED)
    assert complaints == set()


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", b"A" * 4096, {"name": "A" * 96}),
        ("name", b"NVIDIA\xff", {"name": "NVIDIA\ufffd"}),
        ("name", b"a\x1b[2J\n\x00b", {"name": "a[2Jb"}),
        ("serial", b"1\n2", {"serial": "12"}),
        ("pci", b"../../etc", {"pci": ""}),
        ("pci", b"0000:41:00.9", {"pci": ""}),
        ("minor", -1, {"minor": -1}),
        ("minor", 1 << 63, {"minor": -1}),
        ("memory", -1, {"memory_mib": 0}),
        ("memory", (1 << 64) - 1, {"memory_mib": 0}),
        ("compute_capability", (-1, 0), {"compute_capability": (0, 0)}),
        ("recovery", -1, {"recovery": None}),
        ("fabric", (b"", 0, 9, 0), {"fabric_state": None}),
        ("uuid", b"", {"uuid": "", "problem": GpuProblem.UNIDENTIFIED}),
        ("uuid", b"GPU-" + b"a" * 4096, {"uuid": "", "problem": GpuProblem.UNIDENTIFIED}),
        ("uuid", b"GPU-\xff", {"uuid": "", "problem": GpuProblem.UNIDENTIFIED}),
        ("uuid", b"GPU-1\n", {"uuid": "", "problem": GpuProblem.UNIDENTIFIED}),
        ("uuid", b"MIG-1", {"uuid": "", "problem": GpuProblem.UNIDENTIFIED}),
    ],
)
def test_what_cannot_be_true_is_left_out_and_complained_about(
    field: str, value: object, expected: dict[str, Any]
) -> None:
    good, _ = cleaned(GOOD)
    gpu, complaints = cleaned({**GOOD, field: value})
    assert gpu == replace(good, **expected)
    assert len(complaints) == 1


@pytest.mark.parametrize(
    ("number", "action"),
    [
        (0, RecoveryAction.NONE),
        (1, RecoveryAction.GPU_RESET),
        (2, RecoveryAction.NODE_REBOOT),
        (3, RecoveryAction.DRAIN_P2P),
        (4, RecoveryAction.DRAIN_AND_RESET),
        (5, RecoveryAction.RECOVER_IMEX_DOMAIN),
        (6, RecoveryAction.BUS_RESET),
        (7, RecoveryAction.SYSTEM_REBOOT),
        (8, RecoveryAction.UNKNOWN_ACTION),
        (None, None),
    ],
)
def test_a_recovery_action_has_a_name(number: int | None, action: RecoveryAction | None) -> None:
    gpu, complaints = cleaned({**GOOD, "recovery": number})
    assert (gpu.recovery, complaints) == (action, set())


CLUSTER = bytes(range(16))


@pytest.mark.parametrize(
    ("fabric", "name", "state"),
    [
        ((CLUSTER, 7, 3, 0), "00010203-0405-0607-0809-0a0b0c0d0e0f.7", "completed"),
        ((CLUSTER, 7, 3, 999), "", "failed"),
        ((bytes(16), 7, 3, 0), "", "completed"),
        ((CLUSTER, 7, 2, 0), "", "in-progress"),
        ((CLUSTER, 7, 1, 0), "", "not-started"),
        ((CLUSTER, 7, 0, 0), "", "not-supported"),
    ],
)
def test_a_fabric_is_named_once_its_registration_is_complete(
    fabric: tuple[bytes, int, int, int], name: str, state: str
) -> None:
    gpu, _ = cleaned({**GOOD, "fabric": fabric})
    assert (gpu.fabric, gpu.fabric_state) == (name, FabricState(state))


def test_mig_devices_without_a_proper_uuid_or_with_one_twice_are_refused() -> None:
    def mig(uuid: bytes, memory: int = 9984) -> Raw:
        name = b"NVIDIA MIG 1g.10gb"
        return {"uuid": uuid, "name": name, "gpu_instance": 7, "memory_mib": memory}

    raw = {**GOOD, "mig": (1, 0), "migs": [mig(b"MIG-1"), mig(b"MIG-2", -5)]}
    gpu, complaints = cleaned(raw)
    assert gpu.migs == (
        Mig(uuid="MIG-1", profile="1g.10gb", gpu_instance=7, memory_mib=9984),
        Mig(uuid="MIG-2", profile="1g.10gb", gpu_instance=7),
    )
    assert (gpu.mig_capable, gpu.mig_mode, gpu.mig_pending) == (True, True, False)
    assert complaints == {"mig"}
    again = [mig(b"MIG-1"), mig(b"MIG-1"), mig(b"\xff")]
    gpu, complaints = cleaned({**raw, "migs": again})
    assert [each.uuid for each in gpu.migs] == ["MIG-1"]
    assert complaints == {"mig", "mig uuid"}


def test_mig_devices_are_named_by_the_number_that_nvml_has_for_them() -> None:
    uuids = (b"MIG-0", b"\xff", b"MIG-2")
    found = [{"uuid": uuid, "number": number} for number, uuid in enumerate(uuids)]
    gpu, _ = cleaned({**GOOD, "mig": (1, 1), "migs": found})
    names = [(name, mig.uuid) for name, mig in gpu.named_migs]
    assert names == [(f"{gpu.index}:0", "MIG-0"), (f"{gpu.index}:2", "MIG-2")]
    unnumbered = replace(gpu, migs=(Mig(uuid="MIG-7", profile="1g.10gb"),))
    assert unnumbered.named_migs == ((f"{gpu.index}:0", unnumbered.migs[0]),)


def gpus(*uuids: str) -> list[Gpu]:
    return [gpu(index, uuid=uuid) for index, uuid in enumerate(uuids)]


@pytest.mark.parametrize(
    ("now", "before", "uuids", "refused"),
    [
        (("a", "b"), (), ["a", "b"], []),
        (("a", "b"), ("a", "b"), ["a", "b"], []),
        (("a", "b"), ("", "b"), ["a", "b"], []),
        (("a", "a", "c"), (), ["", "", "c"], [0, 1]),
        (("a", "a"), ("a", "b"), ["a", "b"], [0, 1]),
        (("a", "x"), ("a", "b"), ["a", "b"], [1]),
        (("b", "a"), ("a", "b"), ["a", "b"], [0, 1]),
        (("", "", "c"), (), ["", "", "c"], []),
    ],
)
def test_a_uuid_that_changes_or_is_used_twice_is_refused(
    now: tuple[str, ...], before: tuple[str, ...], uuids: list[str], refused: list[int]
) -> None:
    complaints = {index: Complaints() for index in range(len(now))}
    found = clean.distinct(gpus(*now), dict(enumerate(gpus(*before))), complaints)
    assert [gpu.uuid for gpu in found] == uuids
    bad = [gpu.index for gpu in found if gpu.problem is GpuProblem.UNIDENTIFIED]
    assert bad == refused == [index for index, each in complaints.items() if each.found]


@pytest.mark.parametrize(
    ("cuda", "expected"), [(13010, "13.1"), (12080, "12.8"), (0, ""), (-1, ""), (1 << 40, "")]
)
def test_the_cuda_version_is_written_with_a_dot(cuda: int, expected: str) -> None:
    assert clean.cuda_version(cuda, Complaints()) == expected


@pytest.mark.parametrize(
    ("version", "expected"), [(b"580.95.05", "580.95.05"), (b"5\n", ""), (b"9" * 99, "")]
)
def test_a_driver_version_has_a_form(version: bytes, expected: str) -> None:
    assert clean.driver_version(version, Complaints()) == expected


anything = st.one_of(st.none(), st.integers(-(1 << 63), (1 << 64) - 1))
texts = st.one_of(st.none(), st.binary(max_size=200), st.just(UUID))
unsigned = st.integers(0, (1 << 32) - 1)
migs = st.fixed_dictionaries(
    {"uuid": st.binary(max_size=99), "name": st.binary(max_size=99)},
    optional=dict.fromkeys((*set(Mig.__struct_fields__) - {"uuid"}, "profile"), anything),
)
raws = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("uuid", "pci", "name", "serial"), texts),
        **dict.fromkeys(("minor", "memory", "recovery"), anything),
        "compute_capability": st.one_of(
            st.none(), st.tuples(*[st.integers(-(1 << 31), 1 << 31)] * 2)
        ),
        "mig": st.one_of(st.none(), st.tuples(unsigned, unsigned)),
        "migs": st.lists(migs, max_size=4),
        "fabric": st.one_of(
            st.none(), st.tuples(st.binary(max_size=20), unsigned, unsigned, unsigned)
        ),
        "nvlinks": st.lists(unsigned, max_size=40),
    },
)


@given(raws)
def test_whatever_nvml_returns_can_be_sent(raw: Raw) -> None:
    gpu, _ = cleaned(raw)
    facts = Facts(gpus=(gpu,))
    assert message.decode(Facts, message.encode(facts)) == facts
    assert gpu.name.isprintable()
