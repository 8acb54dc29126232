"""GPUs of a guest as Python objects: QEMU asks for each access to their registers.

QEMU's device `x-pci-proxy-dev` leaves a PCI device to another process, which answers over a socket.
So a guest has devices with the ids, the class and the regions of real GPUs, and NVIDIA's own driver
takes them for what they say they are. None of them computes: nothing is behind the registers that
the driver reads when it looks which chip it is.
"""

import array
import os
import socket
import struct
import threading
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

NVIDIA: Final = 0x10DE
_DISPLAY_3D: Final = 0x0302
_REVISION: Final = 0xA1


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuModel:
    """What a GPU says it is."""

    device: int
    subsystem: int
    boot: int
    """Its register PMC_BOOT_0, the chip as older drivers read it."""
    boot_42: int
    """Its register PMC_BOOT_42, the chip as newer drivers read it."""
    vgpu_host_driver: str = ""
    """The driver of a hypervisor's host, if this is a virtual GPU."""


A100: Final = GpuModel(device=0x20B0, subsystem=0x134F, boot=0x170000A1, boot_42=0x170A1000)
H100: Final = GpuModel(device=0x2330, subsystem=0x16C1, boot=0x180000A1, boot_42=0x180A1000)
T4: Final = GpuModel(device=0x1EB8, subsystem=0x12A2, boot=0x164000A1, boot_42=0x164A1000)
LOST: Final = GpuModel(device=0x20B0, subsystem=0x134F, boot=0xFFFFFFFF, boot_42=0xFFFFFFFF)
"""An A100 that fell off the bus: all bits of its registers are set."""
VIRTUAL: Final = GpuModel(
    device=0x20B0, subsystem=0x134F, boot=0x170000A1, boot_42=0x170A1000,
    vgpu_host_driver="550.163.01",
)  # fmt: skip

_MIB: Final = 1 << 20
_REGIONS: Final = {0x10: 16 * _MIB, 0x14: 256 * _MIB, 0x1C: 32 * _MIB}
"""Sizes of the regions, by the place of their address: registers, memory, and what maps both."""
_MEMORY: Final = 0x14
_PREFETCHABLE: Final = 0x8
_COMMAND: Final = 0x04
_INTERRUPT_LINE: Final = 0x3C
_BOOT_0: Final = 0x0
_BOOT_42: Final = 0xA00
_CONFIGURATION: Final = 4096


class _Configuration:
    """The configuration space of a device: values, and which of their bits can be written."""

    def __init__(self) -> None:
        self._values = bytearray(_CONFIGURATION)
        self._writable = bytearray(_CONFIGURATION)

    def define(self, at: int, size: int, value: int, *, writable: int = 0) -> None:
        self._values[at : at + size] = value.to_bytes(size, "little")
        self._writable[at : at + size] = writable.to_bytes(size, "little")

    def read(self, at: int, size: int) -> int:
        return int.from_bytes(self._values[at : at + size], "little")

    def write(self, at: int, size: int, value: int) -> None:
        new = (value % (1 << 8 * size)).to_bytes(size, "little")
        for place, byte in enumerate(new, start=at):
            mask = self._writable[place]
            self._values[place] = self._values[place] & ~mask | byte & mask


def _configuration(model: GpuModel) -> _Configuration:
    made = _Configuration()
    made.define(0x00, 2, NVIDIA)
    made.define(0x02, 2, model.device)
    made.define(_COMMAND, 2, 0, writable=0x0547)  # input, memory, bus master, interrupts
    made.define(0x06, 2, 0x0010)  # the status: it has capabilities
    made.define(0x08, 4, _DISPLAY_3D << 16 | _REVISION)
    for place, size in _REGIONS.items():
        kind = _PREFETCHABLE if place == _MEMORY else 0
        made.define(place, 4, kind, writable=(1 << 32) - size)
    made.define(0x2C, 2, NVIDIA)
    made.define(0x2E, 2, model.subsystem)
    made.define(_INTERRUPT_LINE, 1, 10, writable=0xFF)  # the interrupt's line
    made.define(0x3D, 1, 1)  # and its pin
    _add_capabilities(made, model)
    return made


def _add_capabilities(made: _Configuration, model: GpuModel) -> None:
    """Add a chain of capabilities: the place of the first, then in each the place of the next."""
    power, messages, express, vendor = 0x60, 0x68, 0x78, 0xC0
    made.define(0x34, 1, power)
    made.define(power, 2, messages << 8 | 0x01)
    made.define(power + 2, 2, 0x0003)
    made.define(power + 4, 2, 0x0008, writable=0x0003)
    made.define(messages, 2, express << 8 | 0x05)
    made.define(messages + 2, 2, 0x0080, writable=0x0001)
    made.define(messages + 4, 4, 0, writable=0xFFFFFFFC)
    made.define(messages + 8, 4, 0, writable=0xFFFFFFFF)
    made.define(messages + 12, 2, 0, writable=0xFFFF)
    after = vendor if model.vgpu_host_driver else 0
    made.define(express, 2, after << 8 | 0x10)
    made.define(express + 2, 2, 0x0002)
    made.define(express + 4, 4, 0x012C8DE1)
    made.define(express + 8, 2, 0x2936, writable=0x7FFF)
    made.define(express + 12, 4, 0x00476104)  # 16 lanes of 16 GT/s
    made.define(express + 16, 2, 0, writable=0x0FFF)
    made.define(express + 18, 2, 0x1104)
    if model.vgpu_host_driver:
        record = bytes((0, 22)) + model.vgpu_host_driver.encode().ljust(20, b"\0")
        content = bytes((0x09, 0, 5 + len(record))) + b"VF" + record
        for place, byte in enumerate(content, start=vendor):
            made.define(place, 1, byte)


class _Command(IntEnum):
    """What QEMU asks, as `MPQemuCmd` of its multi-process devices numbers it."""

    SYNC_SYSTEM_MEMORY = 0
    RETURN = 1
    WRITE_CONFIGURATION = 2
    READ_CONFIGURATION = 3
    WRITE_REGION = 4
    READ_REGION = 5
    SET_INTERRUPT = 6
    RESET = 7


_HEADER: Final = struct.Struct("=i4xQ")
_CONFIGURATION_ACCESS: Final = struct.Struct("=IIi")
_REGION_ACCESS: Final = struct.Struct("=QQI")
_DESCRIPTORS: Final = 8
"""QEMU sends file descriptors of the guest's memory and of interrupts; they are not needed."""


class ProxyGpu:
    """One GPU of one guest, from before QEMU starts until QEMU ends."""

    def __init__(self, model: GpuModel, *, name: str) -> None:
        self._model = model
        self._reset()
        self._ours, self._qemus = socket.socketpair()
        self._server = threading.Thread(target=self._serve, name=name, daemon=True)
        self._server.start()

    def _reset(self) -> None:
        self._configuration = _configuration(self._model)
        self._registers = {_BOOT_0: self._model.boot, _BOOT_42: self._model.boot_42}

    @property
    def descriptor(self) -> int:
        """The file descriptor that QEMU is to inherit."""
        return self._qemus.fileno()

    def become(self, model: GpuModel) -> None:
        """Be another GPU at the same place, which the guest sees when it reads it next."""
        before, after = self._configuration, _configuration(model)
        for place in (*_REGIONS, _COMMAND, _INTERRUPT_LINE):
            after.write(place, 4, before.read(place, 4))
        # Whole at once: QEMU may ask meanwhile.
        self._model, self._configuration = model, after
        self._registers = {_BOOT_0: model.boot, _BOOT_42: model.boot_42}

    def leave_to_qemu(self) -> None:
        """Close our copy of QEMU's end, so that the server ends when QEMU does."""
        self._qemus.close()

    def close(self) -> None:
        self._qemus.close()
        self._ours.shutdown(socket.SHUT_RDWR)
        self._server.join()
        self._ours.close()

    def _serve(self) -> None:
        try:
            while True:
                command, size = _HEADER.unpack(self._receive(_HEADER.size))
                self._answer(command, self._receive(size))
        except (EOFError, OSError):
            pass  # QEMU has ended

    def _answer(self, command: int, body: bytes) -> None:
        match command:
            case _Command.READ_CONFIGURATION:
                at, _, size = _CONFIGURATION_ACCESS.unpack_from(body)
                self._return(self._configuration.read(at, size))
            case _Command.WRITE_CONFIGURATION:
                at, value, size = _CONFIGURATION_ACCESS.unpack_from(body)
                self._configuration.write(at, size, value)
                self._return(0)
            case _Command.READ_REGION:
                address, _, size = _REGION_ACCESS.unpack_from(body)
                self._return(self._read(address) % (1 << 8 * size))
            case _Command.WRITE_REGION:
                address, value, _ = _REGION_ACCESS.unpack_from(body)
                self._write(address, value)
                self._return(0)
            case _Command.RESET:
                self._reset()
                self._return(0)
            case _:  # needs no answer
                pass

    def _read(self, address: int) -> int:
        if self._model is LOST:
            return (1 << 64) - 1
        register = self._register(address)
        return 0 if register is None else self._registers.get(register, 0)

    def _write(self, address: int, value: int) -> None:
        register = self._register(address)
        if register is not None and register not in (_BOOT_0, _BOOT_42):
            self._registers[register] = value

    def _register(self, address: int) -> int | None:
        """Return the register at an address, which the guest's kernel chose for its region."""
        first = self._configuration.read(0x10, 4) & ~0xF
        return address - first if first and first <= address < first + _REGIONS[0x10] else None

    def _return(self, value: int) -> None:
        self._ours.sendall(_HEADER.pack(_Command.RETURN, 8) + struct.pack("=Q", value))

    def _receive(self, size: int) -> bytes:
        data = b""
        room = socket.CMSG_SPACE(_DESCRIPTORS * array.array("i").itemsize)
        while len(data) < size:
            more, descriptors, *_ = self._ours.recvmsg(size - len(data), room)
            _close(descriptors)
            if not more:
                raise EOFError
            data += more
        return data


def _close(messages: list[tuple[int, int, bytes]]) -> None:
    for level, kind, content in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors = array.array("i")
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
            for descriptor in descriptors:
                os.close(descriptor)
