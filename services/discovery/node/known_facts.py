"""Facts that do not go away because they were once not seen (docs/invariants.md#i6). Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from libs.contracts.facts import Facts, PciDevice

MAX_MISSED: Final = 3
"""A device is gone when it was missing from so many looks, one after another."""


class KnownFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a machine, in one boot."""

    facts: Facts = Facts()
    missed: Mapping[str, int] = {}
    """By address of a device that is known: how many looks in a row did not show it."""

    def after(self, seen: Facts) -> "KnownFacts":
        """What is known when this was seen too. A section that was not seen stays as it was."""
        pci, missed = _devices(self, seen.pci)
        lacking = {
            name: getattr(self.facts, name)
            for name in Facts.__struct_fields__
            if getattr(seen, name) is None
        }
        facts = msgspec.structs.replace(seen, **{**lacking, "pci": pci})
        return KnownFacts(facts=facts, missed=missed)


def _devices(
    known: KnownFacts, seen: tuple[PciDevice, ...] | None
) -> tuple[tuple[PciDevice, ...] | None, Mapping[str, int]]:
    if seen is None:
        return known.facts.pci, known.missed
    there = {device.address: device for device in seen}
    missed: dict[str, int] = {}
    for device in known.facts.pci or ():
        if device.address in there:
            continue
        times = known.missed.get(device.address, 0) + 1
        if times < MAX_MISSED:
            missed[device.address] = times
            there[device.address] = device
    return tuple(there[address] for address in sorted(there)), missed
