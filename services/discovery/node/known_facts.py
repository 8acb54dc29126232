"""Facts that survive a failed read of the machine (docs/invariants.md#i6). Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from libs.contracts.facts import Facts, PciDevice

MAX_MISSED: Final = 3
"""Consecutive scans without a device after which it is gone."""


class KnownFacts(msgspec.Struct, frozen=True, kw_only=True):
    facts: Facts = Facts()
    missed: Mapping[str, int] = {}
    """By address of a known device: the number of latest scans without it."""

    def after(self, scan: Facts) -> "KnownFacts":
        """Merge a scan; a section that it lacks keeps its value."""
        pci, missed = _merge_devices(self, scan.pci)
        lacking = {
            name: getattr(self.facts, name)
            for name in Facts.__struct_fields__
            if getattr(scan, name) is None
        }
        facts = msgspec.structs.replace(scan, **{**lacking, "pci": pci})
        return KnownFacts(facts=facts, missed=missed)


def _merge_devices(
    known: KnownFacts, scanned: tuple[PciDevice, ...] | None
) -> tuple[tuple[PciDevice, ...] | None, Mapping[str, int]]:
    if scanned is None:
        return known.facts.pci, known.missed
    devices = {device.address: device for device in scanned}
    missed: dict[str, int] = {}
    for device in known.facts.pci or ():
        if device.address in devices:
            continue
        times = known.missed.get(device.address, 0) + 1
        if times < MAX_MISSED:
            missed[device.address] = times
            devices[device.address] = device
    return tuple(devices[address] for address in sorted(devices)), missed
