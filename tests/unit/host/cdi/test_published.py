from pathlib import Path

import pytest

from libs.host.cdi import published
from libs.host.cdi.published import GPU_FILE, GPU_KIND
from libs.host.cdi.spec import Device, DeviceNode, Edits, MalformedSpec, Spec, decode, make_spec
from tests.builders.machine_files import put, tree


def device(name: str, path: str = "/dev/nvidia0") -> Device:
    return Device(name=name, container_edits=Edits(device_nodes=(DeviceNode(path=path),)))


def gpus(*names: str) -> Spec:
    return make_spec(GPU_KIND, common=Edits(), devices=tuple(map(device, names)))


def test_a_spec_is_written_whole_and_its_devices_are_read(tmp_path: Path) -> None:
    machine = tree(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    assert published.devices(machine) == frozenset()
    assert published.put(machine, GPU_FILE, gpus("0", "GPU-a", "all"))
    assert not published.put(machine, GPU_FILE, gpus("0", "GPU-a", "all"))
    assert published.devices(machine) == {"0", "GPU-a", "all"}
    assert machine.names("/run/cdi") == ("nvidia.com-gpu.json",)
    assert machine.mode("/run/cdi/nvidia.com-gpu.json") == 0o644
    assert published.remove(machine, GPU_FILE)
    assert not published.remove(machine, GPU_FILE)
    assert published.devices(machine) == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "\udcff",
        '{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[]}',
        '{"cdiVersion":"0.5.0","kind":"gpu","devices":[{"name":"0","containerEdits":{}}]}',
        '{"cdiVersion":"0.5.0","kind":"a/b","devices":[{"name":"-","containerEdits":{}}]}',
        '{"cdiVersion":"0.5.0","kind":"a/b","devices":[{"name":"0","containerEdits":{"x":1}}]}',
        (
            '{"cdiVersion":"0.5.0","kind":"a/b","devices":[{"name":"0","containerEdits":{}},'
            '{"name":"0","containerEdits":{}}]}'
        ),
    ],
)
def test_a_broken_spec_has_no_devices(tmp_path: Path, text: str) -> None:
    machine = tree(tmp_path, {GPU_FILE: text})
    assert published.devices(machine) == frozenset()
    with pytest.raises(MalformedSpec):
        decode(text.encode(errors="surrogateescape"))


def test_a_spec_of_another_kind_has_no_devices(tmp_path: Path) -> None:
    machine = tree(tmp_path)
    published.put(machine, GPU_FILE, make_spec("a/b", common=Edits(), devices=(device("0"),)))
    assert published.devices(machine) == frozenset()


def test_a_spec_that_is_no_file_has_no_devices(tmp_path: Path) -> None:
    machine = tree(tmp_path, {f"{GPU_FILE}/x": ""})
    assert published.devices(machine) == frozenset()


@pytest.mark.parametrize(
    ("name", "text", "conflicts"),
    [
        ("nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n", True),
        ("x.yaml", 'kind: "nvidia.com/gpu"  # generated\n', True),
        ("nvidia.yml", "kind: nvidia.com/gpu\n", False),
        ("nvidia.json", '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []}', True),
        ("last.json", '{"kind":"nvidia.com/gpu"}', True),
        ("plugin.yaml", "kind: k8s.device-plugin.nvidia.com/gpu\n", False),
        ("other.yaml", "kind: nvidia.com/gpus\n", False),
        ("nvidia.yaml.unfinished", "kind: nvidia.com/gpu\n", False),
    ],
)
def test_no_device_can_be_had_while_another_file_defines_gpus(
    tmp_path: Path, name: str, text: str, conflicts: bool
) -> None:
    machine = tree(tmp_path)
    published.put(machine, GPU_FILE, gpus("0", "all"))
    put(tmp_path, f"/var/run/cdi/{name}", text)
    expected = (f"/var/run/cdi/{name}",) if conflicts else ()
    assert published.conflicts(machine, GPU_FILE, GPU_KIND) == expected
    assert published.devices(machine) == (frozenset() if conflicts else {"0", "all"})


@pytest.mark.parametrize(
    ("kind", "name", "node", "version"),
    [
        ("nvidia.com/gpu", "all", DeviceNode(path="/dev/a"), "0.3.0"),
        ("nvidia.com/gpu", "0", DeviceNode(path="/dev/a"), "0.5.0"),
        ("nvidia.com/gpu", "all", DeviceNode(path="/dev/a", host_path="/dev/b"), "0.5.0"),
        ("nvidia.com/gpu.shared", "all", DeviceNode(path="/dev/a"), "0.6.0"),
    ],
)
def test_a_spec_has_the_lowest_version_that_has_what_it_uses(
    kind: str, name: str, node: DeviceNode, version: str
) -> None:
    made = Device(name=name, container_edits=Edits(device_nodes=(node,)))
    assert make_spec(kind, common=Edits(), devices=(made,)).cdi_version == version
