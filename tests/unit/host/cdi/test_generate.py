"""Specs of whole machines.

`python -m tests.unit.host.cdi.test_generate` writes the golden files.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gpu
from libs.host.cdi import device_files, driver_root
from libs.host.cdi.driver_root import NoDriverFiles
from libs.host.cdi.generate import Generated
from libs.host.cdi.spec import Edits, Spec, decode, encode
from libs.host.tree import Tree, Unreadable
from tests.builders.machine_files import link, put
from tests.unit.host.cdi import drivers
from tests.unit.host.cdi.drivers import BINARIES, CONTAINER_ROOT, VERSION, generated, gpu, mig

GOLDEN = Path(__file__).parent / "golden"
Machine = tuple[Callable[[Path], Tree], tuple[Gpu, ...], str]
MACHINES: dict[str, Machine] = {
    "debian": (drivers.debian, (gpu(0), gpu(1)), "/"),
    "debian-alternatives": (drivers.debian_alternatives, (gpu(0),), "/"),
    "rhel": (drivers.rhel, drivers.DIVIDED, "/"),
    "container": (drivers.container, (gpu(0),), CONTAINER_ROOT),
}
FAMILIES = ("/usr/lib64", "/usr/lib/x86_64-linux-gnu")
LIBRARIES = {
    *("libcuda.so", "libcuda.so.1", "libcudadebugger.so.1", "libnvcuvid.so.1"),
    *("libnvidia-encode.so.1", "libnvidia-ml.so.1", "libnvidia-nvvm.so.4"),
    *(f"libcuda.so.{VERSION}", f"libnvidia-nvvm.so.{VERSION}"),
    *("libnvidia-opencl.so.1", "libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
    *("libnvidia-ptxjitcompiler.so.1", f"libnvidia-gpucomp.so.{VERSION}"),
    *(f"libnvidia-glcore.so.{VERSION}", "vdpau/libvdpau_nvidia.so.1"),
}
FIRMWARE = {f"/lib/firmware/nvidia/{VERSION}/{name}.bin" for name in ("gsp_ga10x", "gsp_tu10x")}
CONTROLS = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}


def specs(name: str, root: Path) -> Generated:
    make, gpus, driver = MACHINES[name]
    return generated(make(root), gpus, root=driver)


def gpu_spec(name: str, root: Path) -> Spec:
    spec = specs(name, root).gpus
    assert spec is not None
    return spec


def nodes(edits: Edits) -> set[str]:
    return {each.path for each in edits.device_nodes}


def devices(spec: Spec) -> dict[str, set[str]]:
    return {each.name: nodes(each.container_edits) for each in spec.devices}


@pytest.mark.parametrize("name", MACHINES)
def test_specs_are_as_in_the_golden_files(tmp_path: Path, name: str) -> None:
    found = specs(name, tmp_path)
    assert found.problems == ()
    assert found.gpus is not None
    assert found.management is not None
    assert encode(found.gpus) == (GOLDEN / f"{name}.json").read_bytes()
    assert encode(found.management) == (GOLDEN / f"{name}.management.json").read_bytes()


@pytest.mark.parametrize("name", MACHINES)
def test_a_container_gets_what_the_reference_lists(tmp_path: Path, name: str) -> None:
    spec = gpu_spec(name, tmp_path)
    inside = [each.container_path for each in spec.container_edits.mounts]
    assert len(inside) == len(set(inside))
    binaries = {f"/usr/bin/{each}" for each in BINARIES}
    extra = {
        "debian": {"/run/nvidia-persistenced/socket"},
        "debian-alternatives": set[str](),
        "rhel": {"/usr/bin/nvidia-imex", "/usr/bin/nvidia-imex-ctl"},
        "container": {"/usr/bin/nvidia-imex"},
    }[name]
    libraries = {f"{folder}/{each}" for folder in FAMILIES for each in LIBRARIES}
    assert set(inside) == libraries | binaries | FIRMWARE | extra
    modeset = {"/dev/nvidia-modeset"} if name == "debian" else set[str]()
    assert nodes(spec.container_edits) == CONTROLS | modeset


@pytest.mark.parametrize("name", MACHINES)
def test_specs_have_no_hooks_and_read_back_the_same(tmp_path: Path, name: str) -> None:
    found = specs(name, tmp_path)
    for spec in (found.gpus, found.management):
        assert spec is not None
        assert decode(encode(spec)) == spec
        text = msgspec.json.decode(encode(spec))
        assert set(text) == {"cdiVersion", "kind", "containerEdits", "devices"}
        edits = [text["containerEdits"], *(each["containerEdits"] for each in text["devices"])]
        assert {key for each in edits for key in each} <= {"env", "deviceNodes", "mounts"}
        for mount in text["containerEdits"]["mounts"]:
            is_socket = mount["containerPath"].endswith("/socket")
            shared = {"nosuid", "nodev", "rbind", "rprivate"}
            assert set(mount["options"]) == {*shared, "noexec" if is_socket else "ro"}


def test_devices_are_named_by_index_and_uuid(tmp_path: Path) -> None:
    first = {"/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD128"}
    assert devices(gpu_spec("debian", tmp_path)) == {
        **dict.fromkeys(("0", "GPU-0"), first),
        **{name: {"/dev/nvidia1"} for name in ("1", "GPU-1")},
        "all": {*first, "/dev/nvidia1"},
    }


def test_mig_devices_replace_their_gpu(tmp_path: Path) -> None:
    def instance(first: int) -> set[str]:
        caps = {f"/dev/nvidia-caps/nvidia-cap{number}" for number in (first, first + 1)}
        return {"/dev/nvidia1", *caps}

    assert devices(gpu_spec("rhel", tmp_path)) == {
        **{name: {"/dev/nvidia0"} for name in ("0", "GPU-0")},
        **dict.fromkeys(("1:0", "MIG-a"), instance(21)),
        **dict.fromkeys(("1:1", "MIG-b"), instance(30)),
        "all": {"/dev/nvidia0", *instance(21), *instance(30)},
    }


def test_mig_devices_are_named_by_nvmls_numbers_which_may_have_gaps(tmp_path: Path) -> None:
    migs = (replace(mig(1, "MIG-a"), number=3), replace(mig(2, "MIG-b"), number=5))
    found = generated(drivers.rhel(tmp_path), (gpu(0), gpu(1, migs=migs))).gpus
    assert found is not None
    assert {"1:3", "1:5"} <= devices(found).keys()
    assert "1:0" not in devices(found)


def test_management_has_every_device_file_of_gpus(tmp_path: Path) -> None:
    spec = specs("rhel", tmp_path).management
    assert spec is not None
    caps = {f"/dev/nvidia-caps/nvidia-cap{number}" for number in (1, 2, 21, 22, 30, 31)}
    channel = "/dev/nvidia-caps-imex-channels/channel0"
    assert devices(spec) == {"all": {"/dev/nvidia0", "/dev/nvidia1", *caps, channel}}
    (tmp_path / "debian").mkdir()
    debian = specs("debian", tmp_path / "debian").management
    assert debian is not None
    assert devices(debian) == {"all": {"/dev/nvidia0", "/dev/nvidia1"}}


def test_paths_of_a_driver_container_are_those_of_the_machine(tmp_path: Path) -> None:
    spec = gpu_spec("container", tmp_path)
    edits = (spec.container_edits, *(each.container_edits for each in spec.devices))
    for each in edits:
        for node in each.device_nodes:
            assert node.host_path == f"{CONTAINER_ROOT}{node.path}"
    mounts = {each.container_path: each.host_path for each in spec.container_edits.mounts}
    assert all(path.startswith(f"{CONTAINER_ROOT}/") for path in mounts.values())
    assert mounts["/usr/bin/nvidia-imex"] == f"{CONTAINER_ROOT}/opt/nvidia/imex"
    assert spec.cdi_version == "0.5.0"


def test_devices_that_cannot_be_had_are_left_out_and_named(tmp_path: Path) -> None:
    tree = drivers.rhel(tmp_path)
    gpus = (
        gpu(0),
        gpu(2),
        msgspec.structs.replace(gpu(3), uuid="", minor=0),
        msgspec.structs.replace(gpu(4), minor=-1),
        gpu(1, migs=(mig(1, "MIG-a"), mig(3, "MIG-c"), mig(2, "MIG-GPU-1/2/0"))),
    )
    found = generated(tree, gpus)
    assert found.gpus is not None
    assert set(devices(found.gpus)) == {"0", "GPU-0", "1:0", "MIG-a", "all"}
    assert found.problems == (
        "GPU 2 (GPU-2) has no device file /dev/nvidia2",
        "GPU 3 has no UUID that the driver tells",
        "GPU 4 (GPU-4) has no device file /dev/nvidia-1",
        "MIG device 1:1 (MIG-c) has no device files of its instances in /dev/nvidia-caps",
        "MIG device 1:2 (MIG-GPU-1/2/0) has no device files of its instances in /dev/nvidia-caps",
    )
    assert generated(tree, (gpu(1, migs=()),)).gpus is None


@pytest.mark.parametrize("make", [drivers.rhel, drivers.debian_alternatives])
def test_a_root_without_a_cache_has_the_default_folders(
    tmp_path: Path, make: Callable[[Path], Tree]
) -> None:
    tree = make(tmp_path)
    before = generated(tree, drivers.DIVIDED)
    (tmp_path / "etc/ld.so.cache").unlink()
    assert generated(tree, drivers.DIVIDED) == before


@pytest.mark.parametrize(
    ("libraries", "programs"),
    [
        ("/home/kubernetes/bin/nvidia/lib64", "/home/kubernetes/bin/nvidia/bin"),
        ("/opt/nvidia/current/lib64", "/opt/bin"),
        ("/usr/local/glibc/usr/lib", "/usr/local/bin"),
    ],
)
def test_a_driver_of_the_machines_image_is_found(
    tmp_path: Path, libraries: str, programs: str
) -> None:
    """Some of these systems have no loader's cache that names them."""
    put(tmp_path, f"{libraries}/libcuda.so.{VERSION}", "ELF")
    put(tmp_path, f"{programs}/nvidia-smi", "ELF")
    files = driver_root.find(Tree(tmp_path), "/", VERSION)
    assert [each.path for each in files.libraries] == [f"{libraries}/libcuda.so.{VERSION}"]
    assert [(each.path, each.inside) for each in files.binaries] == [
        (f"{programs}/nvidia-smi", "/usr/bin/nvidia-smi")
    ]


def test_of_two_folders_with_a_library_that_of_libcuda_counts(tmp_path: Path) -> None:
    tree = drivers.debian_alternatives(tmp_path)
    put(tmp_path, f"/usr/lib/x86_64-linux-gnu/libnvidia-encode.so.{VERSION}", "ELF of a rest")
    put(tmp_path, f"/usr/lib64/libnvidia-glcore.so.{VERSION}", "ELF of a rest")
    paths = {each.path for each in driver_root.find(tree, "/", VERSION).libraries}
    found = {path for path in paths if "encode" in path or "glcore" in path}
    here = "/usr/lib/x86_64-linux-gnu"
    assert found == {
        f"{here}/nvidia/current/libnvidia-encode.so.{VERSION}",
        f"{here}/libnvidia-glcore.so.{VERSION}",
    }


@pytest.mark.parametrize(
    ("root", "version", "problem"),
    [
        ("/", "575.1.2", "libcuda.so.575.1.2 was not found below the driver's root /:"),
        ("/", "../../etc", "is no version"),
        ("/run/nvidia/driver", VERSION, "the driver's root /run/nvidia/driver does not exist"),
    ],
)
def test_a_root_without_the_driver_is_refused(
    tmp_path: Path, root: str, version: str, problem: str
) -> None:
    with pytest.raises(NoDriverFiles, match=problem):
        driver_root.find(drivers.rhel(tmp_path), root, version)


def test_a_broken_cache_is_an_error_that_says_where(tmp_path: Path) -> None:
    tree = drivers.container(tmp_path)
    put(tmp_path, f"{CONTAINER_ROOT}/etc/ld.so.cache", "broken")
    with pytest.raises(NoDriverFiles, match=f"{CONTAINER_ROOT} is broken: it does not begin"):
        driver_root.find(tree, CONTAINER_ROOT, VERSION)


def test_no_link_of_a_driver_container_leads_out_of_it(tmp_path: Path) -> None:
    tree = drivers.container(tmp_path)
    put(tmp_path, "/secret", "of the machine")
    folder = f"{CONTAINER_ROOT}/usr/lib/x86_64-linux-gnu"
    for number, target in enumerate(("/secret", "../" * 9 + "secret", "/proc/1/root/secret")):
        link(tmp_path, f"{folder}/libevil{number}.so.{VERSION}", target)
    put(tmp_path, f"{folder}/libempty.so.{VERSION}", "")
    put(tmp_path, f"{folder}/lib name,{VERSION}.so.{VERSION}", "ELF")
    paths = {each.path for each in driver_root.find(tree, CONTAINER_ROOT, VERSION).libraries}
    wanted = {f"{folder}/{stem}.so.{VERSION}" for stem in drivers.SONAMES}
    assert paths == {*wanted, f"{folder}/vdpau/libvdpau_nvidia.so.{VERSION}"}


def test_a_link_that_leads_to_itself_is_no_missing_file(tmp_path: Path) -> None:
    tree = drivers.container(tmp_path)
    name = f"libnvidia-x.so.{VERSION}"
    link(tmp_path, f"{CONTAINER_ROOT}/usr/lib/x86_64-linux-gnu/{name}", name)
    with pytest.raises(Unreadable, match=name):
        driver_root.find(tree, CONTAINER_ROOT, VERSION)


def test_device_files_of_the_machine_go_before_those_of_a_container(tmp_path: Path) -> None:
    tree = drivers.container(tmp_path)
    drivers.add_devices(tmp_path, "nvidia7")
    found = device_files.find(tree, CONTAINER_ROOT)
    assert (found.hosts, found.paths) == ({}, CONTROLS | {"/dev/nvidia7"})


def test_links_at_a_containers_device_files_are_followed_within_its_root(tmp_path: Path) -> None:
    tree = drivers.container(tmp_path)
    drivers.add_devices(tmp_path / "elsewhere", "nvidia5")
    container = tmp_path / CONTAINER_ROOT.lstrip("/")
    (container / "dev").rename(container / "real")
    link(tmp_path, f"{CONTAINER_ROOT}/dev", "/real")
    put(tmp_path, "/real/nvidia8", "of the machine")
    link(tmp_path, f"{CONTAINER_ROOT}/real/nvidia9", "nvidia0")
    found = device_files.find(tree, CONTAINER_ROOT)
    assert found.paths == CONTROLS | {"/dev/nvidia0"}
    assert found.hosts == {
        path: f"{CONTAINER_ROOT}/real/{path.rpartition('/')[2]}" for path in found.paths
    }
    (container / "dev").unlink()
    link(tmp_path, f"{CONTAINER_ROOT}/dev", "/../../../elsewhere/dev")
    assert device_files.find(tree, CONTAINER_ROOT).paths == frozenset()


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name in MACHINES:
        with tempfile.TemporaryDirectory() as folder:
            found = specs(name, Path(folder))
            for spec, suffix in ((found.gpus, ""), (found.management, ".management")):
                assert spec is not None
                (GOLDEN / f"{name}{suffix}.json").write_bytes(encode(spec))


if __name__ == "__main__":
    main()
