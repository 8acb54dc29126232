"""Specs of GPUDirect Storage, RDMA, GDRCopy and IMEX channels on whole machines.

`python -m tests.unit.host.cdi.test_extras` writes the golden files.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from libs.host.cdi import extras, published
from libs.host.cdi.extras import GDRCOPY, GDS, IMEX, MOFED, NVSWITCH
from libs.host.cdi.spec import Spec, encode
from libs.host.tree import Tree
from tests.builders.machine_files import link, put, tree
from tests.unit.host.cdi.cdi_schema import problems
from tests.unit.host.cdi.drivers import CONTAINER_ROOT
from tests.unit.host.cdi.test_generate import GOLDEN, MACHINES, specs

DEVICES: dict[str, tuple[str, ...]] = {
    GDS: ("/dev/nvidia-fs0", "/dev/nvidia-fs1"),
    MOFED: ("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm"),
    GDRCOPY: ("/dev/gdrdrv",),
    IMEX: tuple(f"/dev/nvidia-caps-imex-channels/channel{number}" for number in (0, 12)),
    NVSWITCH: ("/dev/nvidia-nvswitch0", "/dev/nvidia-nvswitch11", "/dev/nvidia-nvswitchctl"),
}
OTHERS = ("/dev/nvidia-fs", "/dev/infiniband/umad0", "/dev/infiniband/issm0", "/dev/gdrdrv.old")
MODULES = ("nvidia", "nvidia_fs", "nvidia_peermem", "gdrdrv")


def on_host(root: Path) -> Tree:
    """Return a machine whose driver and modules are of packages."""
    add_modules(root, *MODULES)
    for path in (*OTHERS, *(path for paths in DEVICES.values() for path in paths)):
        put(root, path, "")
    put(root, "/opt/cufile/cufile.json", "{}")
    link(root, "/etc/cufile.json", "/opt/cufile/cufile.json")
    put(root, "/run/udev/data/b259:0", "")
    return Tree(root)


def in_container(root: Path) -> Tree:
    """Return a machine whose driver container has made device files of its own."""
    add_modules(root, *MODULES)
    for kind, paths in DEVICES.items():
        for path in paths:
            put(root, path if kind == MOFED else f"{CONTAINER_ROOT}{path}", "")
    put(root, "/etc/shadow", "of the machine")
    link(root, f"{CONTAINER_ROOT}/etc/cufile.json", "../../../../../../etc/shadow")
    return Tree(root)


def add_modules(root: Path, *names: str) -> None:
    for name in names:
        put(root, f"/sys/module/{name}/refcnt", "1\n")


GROUNDS: dict[str, tuple[Callable[[Path], Tree], str]] = {
    "host": (on_host, ""),
    "container": (in_container, CONTAINER_ROOT),
}


def found(name: str, root: Path) -> dict[str, Spec]:
    make, driver_root = GROUNDS[name]
    return extras.find(make(root), driver_root)


def names_of(specs: dict[str, Spec]) -> dict[str, list[str]]:
    return {kind: [each.name for each in spec.devices] for kind, spec in specs.items()}


@pytest.mark.parametrize("name", GROUNDS)
def test_specs_are_as_in_the_golden_files(tmp_path: Path, name: str) -> None:
    assert text_of(found(name, tmp_path)) == (GOLDEN / f"{name}.extras.json").read_bytes()


def text_of(specs: dict[str, Spec]) -> bytes:
    return b"".join(encode(specs[kind]) for kind in extras.KINDS)


def test_devices_are_named_as_by_the_reference(tmp_path: Path) -> None:
    specs = found("host", tmp_path)
    channels = ["0", "12", "all"]
    whole = {kind: ["all"] for kind in (GDS, MOFED, GDRCOPY, NVSWITCH)}
    assert names_of(specs) == whole | {IMEX: channels}
    for kind, paths in DEVICES.items():
        everything = next(each for each in specs[kind].devices if each.name == "all")
        assert {node.path for node in everything.container_edits.device_nodes} == set(paths)
    first = next(each for each in specs[IMEX].devices if each.name == "12")
    assert [node.path for node in first.container_edits.device_nodes] == [DEVICES[IMEX][1]]


def test_storage_comes_with_its_settings_and_the_list_of_disks(tmp_path: Path) -> None:
    (device,) = found("host", tmp_path)[GDS].devices
    mounts = {each.container_path: each.host_path for each in device.container_edits.mounts}
    assert mounts == {"/etc/cufile.json": "/opt/cufile/cufile.json", "/run/udev": "/run/udev"}


def test_no_link_of_a_driver_container_leads_out_of_it(tmp_path: Path) -> None:
    specs = found("container", tmp_path)
    assert [each.container_edits.mounts for each in specs[GDS].devices] == [()]
    hosts = {
        node.host_path
        for spec in specs.values()
        for each in spec.devices
        for node in each.container_edits.device_nodes
    }
    outside = {path for path in hosts if not path.startswith(f"{CONTAINER_ROOT}/dev/")}
    assert outside == {""}  # the verbs of RDMA are the machine's


@pytest.mark.parametrize(
    ("module", "kinds"),
    [
        ("nvidia_fs", {GDS, MOFED}),
        ("nvidia_peermem", {MOFED}),
        ("gdrdrv", {GDRCOPY}),
        ("nvidia", {IMEX, NVSWITCH}),
        ("mlx5_core", set[str]()),
    ],
)
def test_a_kind_exists_only_while_its_module_is_loaded(
    tmp_path: Path, module: str, kinds: set[str]
) -> None:
    machine = tree(tmp_path, {path: "" for paths in DEVICES.values() for path in paths})
    add_modules(tmp_path, module)
    assert set(extras.find(machine, "")) == kinds
    used = {path for kind in kinds for path in DEVICES[kind]}
    assert extras.traces(machine, "") == used


def test_a_machine_without_device_files_has_none(tmp_path: Path) -> None:
    add_modules(tmp_path, *MODULES)
    assert extras.find(Tree(tmp_path), "") == {}


def test_specs_of_each_kind_are_files_of_their_own_that_are_read_back(tmp_path: Path) -> None:
    specs = found("host", tmp_path)
    machine = Tree(tmp_path)
    for kind, spec in specs.items():
        published.put(machine, published.file_of(kind), spec)
    read = {kind: sorted(published.devices_of(machine, kind)) for kind in extras.KINDS}
    assert read == names_of(specs)
    assert published.devices(machine) == frozenset()
    assert machine.names(published.FOLDER) == (
        "nvidia.com-gdrcopy.json",
        "nvidia.com-gds.json",
        "nvidia.com-imex-channel.json",
        "nvidia.com-mofed.json",
        "nvidia.com-nvswitch.json",
    )


@pytest.mark.parametrize("name", GROUNDS)
def test_runtimes_accept_the_specs_of_extras(tmp_path: Path, name: str) -> None:
    for spec in found(name, tmp_path).values():
        assert problems(msgspec.json.decode(encode(spec))) == []


@pytest.mark.parametrize("name", MACHINES)
def test_runtimes_accept_the_specs_of_gpus(tmp_path: Path, name: str) -> None:
    made = specs(name, tmp_path)
    for spec in (made.gpus, made.management):
        assert spec is not None
        assert problems(msgspec.json.decode(encode(spec))) == []


def test_the_schema_refuses_what_runtimes_refuse(tmp_path: Path) -> None:
    spec = msgspec.json.decode(encode(found("host", tmp_path)[IMEX]))
    device = {"name": "a", "containerEdits": {}}
    wrong = [
        {**spec, "cdiVersion": "0.3.0"},
        {**spec, "cdiVersion": "2.0.0"},
        {**spec, "kind": "gpu"},
        {**spec, "devices": []},
        {**spec, "devices": [device, device]},
        {**spec, "devices": [{**device, "name": "-"}]},
        {**spec, "devices": [{**device, "containerEdits": {"nodes": []}}]},
        {**spec, "devices": [{**device, "containerEdits": {"deviceNodes": [{"path": "x"}]}}]},
        {**spec, "containerEdits": {"env": ["A"]}},
        {**spec, "containerEdits": {"mounts": [{"hostPath": "/x"}]}},
        {**spec, "more": 1},
    ]
    assert [bool(problems(each)) for each in wrong] == [True] * len(wrong)


def test_links_at_a_containers_device_files_are_followed_within_its_root(tmp_path: Path) -> None:
    add_modules(tmp_path, "nvidia")
    put(tmp_path, "/elsewhere/channel7", "of the machine")
    put(tmp_path, f"{CONTAINER_ROOT}/elsewhere/channel0", "")
    link(tmp_path, f"{CONTAINER_ROOT}/elsewhere/channel1", "channel0")
    link(tmp_path, f"{CONTAINER_ROOT}/dev/nvidia-caps-imex-channels", "/elsewhere")
    (spec,) = extras.find(Tree(tmp_path), CONTAINER_ROOT).values()
    (_, channel) = spec.devices
    (node,) = channel.container_edits.device_nodes
    assert (channel.name, node.host_path) == ("all", f"{CONTAINER_ROOT}/elsewhere/channel0")


def main() -> None:
    for name in GROUNDS:
        with tempfile.TemporaryDirectory() as folder:
            (GOLDEN / f"{name}.extras.json").write_bytes(text_of(found(name, Path(folder))))


if __name__ == "__main__":
    main()
