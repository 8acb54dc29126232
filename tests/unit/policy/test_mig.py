"""MIG configurations: the file, the built-in names on each product, and the geometry of a node."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import GpuGeometry
from libs.contracts.facts import Gpu, MigBoard, MigKind, PciDevice
from libs.contracts.gpus import GpuProblem
from libs.policy.findings import Finding
from libs.policy.mig.config import MigConfigFile
from libs.policy.mig.defaults import config_name, default_config
from libs.policy.mig.geometry import (
    NO_DIGEST,
    differences,
    expected_geometry,
    found_geometry,
    is_applied,
    mig_digest,
    remarks,
)
from libs.policy.mig.parsing import parse_config
from libs.policy.mig.products import DEVICES, has_room
from libs.policy.mig.resolution import MigProblem, MigProblemCode, resolve
from tests.unit.policy.mig_gpus import A100, H100, MIXED, SEVEN, gpu, pci


def parsed(text: str) -> MigConfigFile:
    found = parse_config(text)
    assert isinstance(found, MigConfigFile), found
    return found


def resolved(*given: Any) -> tuple[GpuGeometry, ...]:
    found = resolve(*given)
    assert not isinstance(found, MigProblem), found
    return found


def problem(*given: Any) -> MigProblem:
    found = resolve(*given)
    assert isinstance(found, MigProblem), found
    return found


def entry(text: str) -> str:
    return f"version: v1\nmig-configs:\n  one:\n  - {{{text}}}\n"


@pytest.mark.parametrize("device", DEVICES)
def test_every_built_in_name_fits_its_products(device: str) -> None:
    product = DEVICES[device]
    for profile, kind in product.kinds.items():
        found = resolved(default_config(), config_name(profile), [gpu()], [pci(device=device)])
        assert [each.profiles for each in found] == [(profile,) * kind.most]
        assert not has_room(product, (profile,) * (kind.most + 1))
    found = resolved(default_config(), "all-balanced", [gpu()], [pci(device=device)])
    assert len(found) == 1
    assert len(found[0].profiles) in (3, 4)


@pytest.mark.parametrize(
    ("device", "name", "profiles"),
    [
        (A100, "all-1g.10gb", ("1g.10gb",) * 4),
        (H100, "all-1g.10gb", SEVEN),
        (H100, "all-1g.10gb.me", ("1g.10gb+me",)),
        (H100, "all-balanced", MIXED),
        ("31c210de", "all-1g.35gb", ("1g.35gb",) * 7),
        ("233510de", "all-1g.35gb", ("1g.35gb",) * 4),
        ("2bb510de", "all-1g.24gb-me", ("1g.24gb-me",) * 4),
        ("20b710de", "all-2g.12gb", ("2g.12gb",) * 2),
        (H100, "all-enabled", ()),
    ],
)
def test_a_built_in_name_on_a_product(device: str, name: str, profiles: tuple[str, ...]) -> None:
    wanted = (GpuGeometry(uuid="GPU-0", index=0, mig=True, profiles=profiles),)
    assert resolve(default_config(), name, [gpu()], [pci(device=device)]) == wanted


def test_a_device_filter_may_name_the_subsystem() -> None:
    text = 'devices: all, mig-enabled: false, device-filter: "0x233010DE:0x{}10DE"'
    assert resolve(parsed(entry(text.format("16C1"))), "one", [gpu()], [pci()]) == (
        GpuGeometry(uuid="GPU-0", index=0),
    )
    assert resolve(parsed(entry(text.format("16C2"))), "one", [gpu()], [pci()]) == ()


def test_a_filter_that_is_no_pci_id_is_for_no_gpu() -> None:
    all_off = "  - {devices: all, mig-enabled: false}\n"
    model = (
        '  - {devices: all, mig-enabled: true, mig-devices: {}, device-filter: [MODEL, "0x1"]}\n'
    )
    file = parsed(f"version: v1\nmig-configs:\n  one:\n{all_off}{model}  two:\n{model}")
    assert resolve(file, "one", [gpu()], [pci()]) == (GpuGeometry(uuid="GPU-0", index=0),)
    assert isinstance(resolve(file, "two", [gpu()], [pci()]), MigProblem)
    everywhere = parsed(entry('devices: all, mig-enabled: false, device-filter: ""'))
    assert resolve(everywhere, "one", [gpu()], [pci()]) == (GpuGeometry(uuid="GPU-0", index=0),)


def test_a_file_may_have_no_configuration_yet() -> None:
    assert parsed("version: v1\n") == MigConfigFile(configs={})


def test_the_last_entry_for_a_gpu_holds() -> None:
    file = parsed(
        "version: v1\nmig-configs:\n  mixed:\n"
        "  - {devices: all, mig-enabled: false}\n"
        "  - {devices: [1], mig-enabled: true, mig-devices: {1g.10gb: 2, 3g.40gb: 1}}\n"
    )
    found = resolved(file, "mixed", [gpu(1), gpu(0)], [pci(0), pci(1)])
    assert [(each.index, each.mig, each.profiles) for each in found] == [
        (0, False, ()),
        (1, True, ("3g.40gb", "1g.10gb", "1g.10gb")),
    ]


@pytest.mark.parametrize(
    ("text", "gpus", "devices", "code", "message"),
    [
        ("", [gpu()], [pci()], MigProblemCode.UNKNOWN_CONFIG, "use one of the file's"),
        ("1g.5gb: 7", [gpu()], [pci()], MigProblemCode.UNKNOWN_PROFILE, "profile 1g.5gb: it has"),
        ("1g.10gb: 8", [gpu()], [pci()], MigProblemCode.NO_ROOM, "8 x 1g.10gb do not fit"),
        ("4g.40gb: 2", [gpu()], [pci()], MigProblemCode.NO_ROOM, "choose fewer"),
        (
            "1g.10gb: 1",
            [gpu(mig_capable=False)],
            [pci()],
            MigProblemCode.NOT_CAPABLE,
            "has no MIG",
        ),
        (
            "1g.10gb: 1",
            [gpu(problem=GpuProblem.LOST)],
            [pci()],
            MigProblemCode.FAILED_GPU,
            "fell off the bus",
        ),
    ],
)
def test_what_cannot_be_applied(
    text: str, gpus: list[Gpu], devices: list[PciDevice], code: MigProblemCode, message: str
) -> None:
    file = parsed(entry(f"devices: all, mig-enabled: true, mig-devices: {{{text}}}"))
    found = problem(file, "one" if text else "none", gpus, devices)
    assert found.code is code
    assert message in str(found)


@pytest.mark.parametrize(
    ("device", "name", "first"),
    [
        (H100, "all-1g.5gb", "all-1g.10gb"),  # of an A100 with 40 GB
        (H100, "all-3g.20gb", "all-3g.40gb"),
        (H100, "al-balanced", "all-balanced"),
        (A100, "all-2g.20gb", "all-2g.10gb"),
    ],
)
def test_a_wrong_name_is_answered_with_those_of_the_board_the_closest_first(
    device: str, name: str, first: str
) -> None:
    file = default_config()
    found = problem(file, f"{name}x", [gpu()], [pci(device=device)])
    words, _, listed = str(found).partition(", such as ")
    assert words.endswith("use one of the file's that its GPUs can have")
    names = listed.split(", ")
    assert first in names[:3], names
    assert len(names) == 8
    for each in names:
        assert not isinstance(resolve(file, each, [gpu()], [pci(device=device)]), MigProblem), each


def test_a_profile_that_no_product_of_the_table_has_is_left_to_the_driver() -> None:
    for text in ("1g.10gb+gfx: 7", "1g.10gb+gfx: 1, 3g.40gb: 1"):
        file = parsed(entry(f"devices: all, mig-enabled: true, mig-devices: {{{text}}}"))
        found = resolved(file, "one", [gpu()], [pci()])
        assert "1g.10gb+gfx" in found[0].profiles


@pytest.mark.parametrize("name", ["all-balanced", "all-1g.10gb"])
def test_a_product_for_which_the_configuration_has_no_entry_is_not_said_to_be_divided(
    name: str,
) -> None:
    found = problem(default_config(), name, [gpu()], [pci(device="999910de")])
    assert found.code is MigProblemCode.NO_ENTRY
    assert "whose PCI id is 0x999910DE" in str(found)


def board(*kinds: MigKind, gpus: tuple[int, ...] = (0,)) -> MigBoard:
    return MigBoard(gpus=gpus, kinds=kinds)


def eighths(memory: int) -> tuple[MigKind, ...]:
    """Return kinds of a board that no table has."""
    return (
        MigKind(name=f"1g.{memory}gb", most=7, size=1, starts=tuple(range(7))),
        MigKind(name=f"1g.{memory}gb+me", most=1, size=1, starts=tuple(range(7))),
        MigKind(name=f"1g.{2 * memory}gb", most=4, size=2, starts=(0, 2, 4, 6)),
        MigKind(name=f"2g.{2 * memory}gb", most=3, size=2, starts=(0, 2, 4)),
        MigKind(name=f"3g.{4 * memory}gb", most=2, size=4, starts=(0, 4)),
        MigKind(name=f"7g.{8 * memory}gb", most=1, size=8, starts=(0,)),
    )


UNKNOWN_BOARD = board(*eighths(50))


@pytest.mark.parametrize(
    ("name", "profiles"),
    [
        ("all-balanced", ("3g.200gb", "2g.100gb", "1g.50gb", "1g.50gb")),
        ("all-1g.50gb", ("1g.50gb",) * 7),
        ("all-1g.50gb.me", ("1g.50gb+me",)),
        ("all-1g.100gb", ("1g.100gb",) * 4),
        ("all-enabled", ()),
    ],
)
@pytest.mark.parametrize("device", ["999910de", H100])
def test_a_built_in_name_means_what_the_driver_of_the_board_says(
    name: str, profiles: tuple[str, ...], device: str
) -> None:
    found = resolve(default_config(), name, [gpu()], [pci(device=device)], [UNKNOWN_BOARD])
    assert found == (GpuGeometry(uuid="GPU-0", index=0, mig=True, profiles=profiles),)


def test_each_board_of_a_node_is_divided_as_its_driver_says() -> None:
    quarters = (
        MigKind(name="1g.24gb-me", most=4, size=1, starts=(0, 1, 2, 3)),
        MigKind(name="1g.24gb", most=4, size=1, starts=(0, 1, 2, 3)),
        MigKind(name="2g.48gb", most=2, size=2, starts=(0, 2)),
        MigKind(name="4g.96gb", most=1, size=4, starts=(0,)),
    )
    boards = [UNKNOWN_BOARD, board(*quarters, gpus=(1,))]
    gpus, devices = [gpu(0), gpu(1), gpu(2)], [pci(0, "999910de"), pci(1, "999810de"), pci(2)]
    found = resolved(default_config(), "all-balanced", gpus, devices, boards)
    assert [each.profiles for each in found] == [
        ("3g.200gb", "2g.100gb", "1g.50gb", "1g.50gb"),
        ("2g.48gb", "1g.24gb", "1g.24gb"),
        MIXED,
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1g.10gb: 7", MigProblemCode.UNKNOWN_PROFILE),
        ("1g.50gb+gfx: 1", MigProblemCode.UNKNOWN_PROFILE),
        ("1g.50gb: 8", MigProblemCode.NO_ROOM),
        ("3g.200gb: 2, 1g.50gb: 1", MigProblemCode.NO_ROOM),
    ],
)
def test_what_the_driver_of_a_board_does_not_have_is_refused_before_the_node_is_drained(
    text: str, code: MigProblemCode
) -> None:
    file = parsed(entry(f"devices: all, mig-enabled: true, mig-devices: {{{text}}}"))
    found = problem(file, "one", [gpu()], [pci()], [UNKNOWN_BOARD])
    assert found.code is code


def test_the_number_of_instances_of_a_known_product_is_the_tables() -> None:
    wrong = board(MigKind(name="1g.6gb", most=2, size=1, starts=(0, 1, 2, 3)))
    found = resolved(default_config(), "all-1g.6gb", [gpu()], [pci(device="20b710de")], [wrong])
    assert found[0].profiles == ("1g.6gb",) * 4


@pytest.mark.parametrize(
    "kind",
    [
        MigKind(name="x", most=1, size=1, starts=(0,)),
        MigKind(name="1g.50gb", most=99, size=1, starts=tuple(range(8))),
        MigKind(name="1g.50gb", most=1, size=0, starts=(0,)),
        MigKind(name="1g.50gb", most=1, size=1, starts=()),
        MigKind(name="1g.50gb", most=1, size=1, starts=tuple(range(64))),
    ],
)
def test_what_cannot_be_true_of_a_board_is_ignored(kind: MigKind) -> None:
    found = resolved(default_config(), "all-balanced", [gpu()], [pci()], [board(kind)])
    assert found[0].profiles == MIXED


def test_a_configuration_for_other_products_leaves_a_node_without_mig_alone() -> None:
    gpus, devices = [gpu(mig_capable=False)], [pci(device="999910de")]
    assert resolve(default_config(), "all-balanced", gpus, devices) == ()
    mixed = [*gpus, gpu(1)]
    found = resolved(default_config(), "all-balanced", mixed, [*devices, pci(1)])
    assert [each.index for each in found] == [1]


def test_without_its_pci_id_a_gpu_matches_no_filter() -> None:
    found = problem(default_config(), "all-balanced", [gpu()], [])
    assert found.code is MigProblemCode.UNKNOWN_DEVICE


def test_compute_instances_share_a_gpu_instance() -> None:
    assert has_room(DEVICES[H100], ("1c.3g.40gb",) * 6)
    assert not has_room(DEVICES[H100], ("1c.3g.40gb",) * 7)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "the file (line"),
        ("a: &x 1\nb: *x", "uses an alias"),
        ("[" * 5000, "within each other"),
        ("version: v1\nversion: v1", "occurs twice"),
        ("version: v2\nmig-configs: {}", 'write "version: v1"'),
        ("version: v1\nmig-configs: []", "mig-configs (a list) is no mapping"),
        (entry("mig-enabled: false"), "mig-configs.one[0].devices is required"),
        (entry("devices: all"), "mig-enabled is required"),
        (entry("devices: all, mig-enabled: true"), "mig-devices is required where MIG is enabled"),
        (entry("devices: all, mig-enabled: yes please"), "is not true or false"),
        (entry("devices: some, mig-enabled: false"), "neither all nor a list"),
        (entry("devices: [-1], mig-enabled: false"), "is no index"),
        (entry("devices: all, mig-enabled: false, devices-filter: 1"), "is no field here"),
        (entry("devices: all, mig-enabled: false, device-filter: 0x233010DE"), "is no PCI id"),
        (entry("devices: all, mig-enabled: true, mig-devices: {1g.10gb: 0}"), "all counts are 0"),
        (entry("devices: all, mig-enabled: true, mig-devices: {1g.10gb: -1}"), "is no count"),
        (entry("devices: all, mig-enabled: true, mig-devices: {10gb: 1}"), "is no MIG profile"),
        (entry("devices: all, mig-enabled: true, mig-devices: {1g.10gb: 65}"), "more than 64"),
        (entry("devices: all, mig-enabled: false, mig-devices: {1g.10gb: 1}"), "not enabled"),
    ],
)
def test_a_file_with_an_error_is_refused(text: str, problem: str) -> None:
    found = parse_config(text)
    assert isinstance(found, tuple)
    assert problem in "\n".join(map(str, found))
    assert all(isinstance(each, Finding) and each.remedy for each in found)


def test_the_digest_does_not_depend_on_order() -> None:
    gpus = [gpu(0, profiles=MIXED), gpu(1, profiles=SEVEN)]
    digest = mig_digest(found_geometry(gpus))
    shuffled = list(MIXED)
    random.Random(1).shuffle(shuffled)
    assert mig_digest(found_geometry([gpus[1], gpu(0, profiles=tuple(shuffled))])) == digest
    assert mig_digest(found_geometry([gpus[0], gpu(1, profiles=SEVEN[1:])])) != digest
    assert mig_digest(found_geometry([gpu(), gpu(1)])) == NO_DIGEST
    assert mig_digest(found_geometry([gpu(mig_mode=True)])) != NO_DIGEST


def test_a_geometry_is_compared_with_facts() -> None:
    wanted = (GpuGeometry(uuid="GPU-0", index=0, mig=True, profiles=SEVEN),)
    assert is_applied(wanted, [gpu(profiles=SEVEN)])
    assert not is_applied(wanted, [replace(gpu(profiles=SEVEN), mig_pending=False)])
    assert differences(wanted, [gpu()]) == ("GPU-0 has MIG off; 7 x 1g.10gb is wanted",)
    assert differences(wanted, []) == ("GPU-0 is not found; 7 x 1g.10gb is wanted",)
    others = [gpu(0), gpu(1, profiles=MIXED)]
    after = [gpu(0, profiles=SEVEN), others[1]]
    assert mig_digest(expected_geometry(wanted, others)) == mig_digest(found_geometry(after))


def test_a_reset_is_said_beforehand() -> None:
    a100 = gpu(compute_capability=(8, 0))
    wanted = (GpuGeometry(uuid="GPU-0", index=0, mig=True, profiles=("1g.5gb",)),)
    assert remarks(wanted, [gpu()]) == ()
    assert remarks(wanted, [replace(a100, mig_mode=True)]) == ()
    assert len(remarks(wanted, [a100])) == 1
    assert "nvidia_drm" in str(remarks(wanted, [a100], modules=("nvidia_drm",))[1])
