"""From GPUs, device files and driver files to CDI specs. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from libs.contracts.facts import Gpu, Mig
from libs.host.cdi.device_files import CONTROLS, DeviceFiles, address_of
from libs.host.cdi.driver_root import DriverFiles
from libs.host.cdi.published import ALL, GPU_KIND, MANAGEMENT_KIND
from libs.host.cdi.spec import (
    FILE_OPTIONS,
    SOCKET_OPTIONS,
    Device,
    DeviceNode,
    Edits,
    Mount,
    Spec,
    is_device_name,
    make_spec,
)

_ENVIRONMENT: Final = ("NVIDIA_VISIBLE_DEVICES=void", "TRITON_LIBCUDA_PATH=/usr/lib64")
"""`void` keeps an NVIDIA runtime that is installed too from adding GPUs of its own. Triton asks the
loader's cache for libcuda, and the cache of an image does not have what is mounted."""


class Generated(msgspec.Struct, frozen=True, kw_only=True):
    """The specs of a machine. A spec without a device is None: a runtime would refuse it."""

    gpus: Spec | None
    management: Spec | None
    problems: tuple[str, ...] = ()
    """Why GPUs or MIG devices are left out, for people."""


def generate(
    gpus: Sequence[Gpu], devices: DeviceFiles, files: DriverFiles, *, architecture: str
) -> Generated:
    """Return the specs; `architecture` is the machine's, such as `x86_64`."""
    problems: list[str] = []
    found = [each for gpu in gpus for each in _devices_of(gpu, devices, problems)]
    mounts = _mounts(files, architecture)
    controls = [path for path in CONTROLS if path in devices.paths]
    common = Edits(env=_ENVIRONMENT, device_nodes=_nodes(devices, controls), mounts=mounts)
    spec = None
    if found:
        everything = _nodes(devices, {path for _, paths in found for path in paths})
        named = {name: _nodes(devices, paths) for names, paths in found for name in names}
        spec = make_spec(GPU_KIND, common=common, devices=_devices(named | {ALL: everything}))
    return Generated(gpus=spec, management=_management(devices, common), problems=tuple(problems))


def _management(devices: DeviceFiles, common: Edits) -> Spec | None:
    """Return the spec of the device that has all GPUs, and what divides them."""
    others = _nodes(devices, devices.paths.difference(CONTROLS))
    if not common.device_nodes and not others:
        return None
    return make_spec(MANAGEMENT_KIND, common=common, devices=_devices({ALL: others}))


def _devices_of(
    gpu: Gpu, devices: DeviceFiles, problems: list[str]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield the names and device files of a GPU, or of its MIG devices."""
    node = f"/dev/nvidia{gpu.minor}"
    if not gpu.uuid or not is_device_name(gpu.uuid):
        problems.append(f"GPU {gpu.index} has no UUID that the driver tells")
    elif gpu.minor < 0 or node not in devices.paths:
        problems.append(f"GPU {gpu.index} ({gpu.uuid}) has no device file {node}")
    elif not gpu.mig_mode:
        yield (
            (str(gpu.index), gpu.uuid),
            (node, *devices.graphics.get(address_of(gpu.pci), ())),
        )
    else:
        for name, mig in gpu.named_migs:
            paths = _instance_files(gpu, mig, devices)
            if is_device_name(mig.uuid) and paths is not None:
                yield (name, mig.uuid), (node, *paths)
            else:
                problems.append(
                    f"MIG device {name} ({mig.uuid}) has no device files of its instances in"
                    " /dev/nvidia-caps"
                )


def _instance_files(gpu: Gpu, mig: Mig, devices: DeviceFiles) -> tuple[str, str] | None:
    of_gpu = devices.capabilities.get((gpu.minor, mig.gpu_instance, None), "")
    of_compute = devices.capabilities.get((gpu.minor, mig.gpu_instance, mig.compute_instance), "")
    return (of_gpu, of_compute) if {of_gpu, of_compute} <= devices.paths else None


def _devices(named: dict[str, tuple[DeviceNode, ...]]) -> tuple[Device, ...]:
    return tuple(
        Device(name=name, container_edits=Edits(device_nodes=named[name])) for name in sorted(named)
    )


def _nodes(devices: DeviceFiles, paths: Iterable[str]) -> tuple[DeviceNode, ...]:
    return tuple(
        DeviceNode(path=path, host_path=devices.hosts.get(path, ""))
        for path in sorted(set(paths), key=_place)
    )


def _mounts(files: DriverFiles, architecture: str) -> tuple[Mount, ...]:
    """Return the mounts; each library is in the default folders of both families of systems.

    A container's loader so finds it without a cache, and nothing has to run in the container.
    """
    folders = ("/usr/lib64", f"/usr/lib/{architecture}-linux-gnu")
    mounts = [
        _mount(each.path, "/".join((folder, *each.below, name)), FILE_OPTIONS)
        for each in files.libraries
        for name in each.names
        for folder in folders
    ]
    plain = (*files.binaries, *files.firmware)
    mounts += [_mount(each.path, each.inside, FILE_OPTIONS) for each in plain]
    mounts += [_mount(each.path, each.inside, SOCKET_OPTIONS) for each in files.sockets]
    by_path = {each.container_path: each for each in reversed(mounts)}
    return tuple(by_path[path] for path in sorted(by_path, key=_place))


def _mount(path: str, inside: str, options: tuple[str, ...]) -> Mount:
    return Mount(host_path=path, container_path=inside, options=options)


def _place(path: str) -> tuple[int, str]:
    """Return the place of a path in a spec: a folder comes before what is in it."""
    return path.count("/"), path
