"""Read a file of MIG configurations: mig-parted's format v1, in YAML.

A file with an error is refused as a whole, with a finding for each error.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from libs.policy.findings import Finding, quote_value
from libs.policy.mig.config import ConfigEntry, DeviceId, MigConfigFile
from libs.policy.mig.profiles import parse_profile
from libs.policy.plain_yaml import RefusedYaml, load_yaml

MAX_DEVICES: Final = 64
"""The most MIG devices of a GPU that are asked for."""

_TOP: Final = ("version", "mig-configs")
_ENTRY: Final = ("device-filter", "devices", "mig-enabled", "mig-devices")
_DEVICE: Final = re.compile(r"0[xX]([0-9a-fA-F]{8})(?::0[xX]([0-9a-fA-F]{8}))?")


def parse_config(text: str) -> MigConfigFile | tuple[Finding, ...]:
    """Return the file, or what is wrong with it."""
    return _Reader().read(text)


class _Reader:
    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def read(self, text: str) -> MigConfigFile | tuple[Finding, ...]:
        content = self._load(text)
        if self.findings:
            return tuple(self.findings)
        configs = self._file(content)
        return tuple(self.findings) or MigConfigFile(configs=configs)

    def _load(self, text: str) -> object:
        try:
            return load_yaml(text)
        except RefusedYaml as error:
            where = f"line {error.line}, column {error.column}" if error.line else ""
            self._add("the file", where, "cannot be used", error.problem)
        return None

    def _file(self, content: object) -> dict[str, tuple[ConfigEntry, ...]]:
        top = self._fields(content, "the file", _TOP)
        if top is None:
            return {}
        if top.get("version") != "v1":
            value = quote_value(top.get("version"))
            self._add("version", value, "is not supported", 'write "version: v1"')
        found = top.get("mig-configs", {})
        if not isinstance(found, Mapping):
            self._add(
                "mig-configs", _value(found), "is no mapping", "write names with their entries"
            )
            return {}
        configs: dict[str, tuple[ConfigEntry, ...]] = {}
        for name, entries in cast("Mapping[object, object]", found).items():
            path = f"mig-configs.{name if isinstance(name, str) else quote_value(name)}"
            if not isinstance(name, str) or not name:
                self._add(path, "", "is no name", "name the configuration by a string")
                continue
            listed = _list(entries)
            if not listed:
                self._add(path, _value(entries), "is no list of entries", "write a list")
                continue
            read = [self._entry(each, f"{path}[{number}]") for number, each in enumerate(listed)]
            configs[name] = tuple(each for each in read if each is not None)
        return configs

    def _entry(self, content: object, path: str) -> ConfigEntry | None:
        before = len(self.findings)
        fields = self._fields(content, path, _ENTRY)
        if fields is None:
            return None
        for required in ("devices", "mig-enabled"):
            if fields.get(required) is None:
                self._add(f"{path}.{required}", "", "is required", "set it")
        enabled = fields.get("mig-enabled")
        if enabled is not None and not isinstance(enabled, bool):
            self._add(
                f"{path}.mig-enabled",
                quote_value(enabled),
                "is not true or false",
                "write true or false, without quotes",
            )
        entry = ConfigEntry(
            filter=self._filter(fields.get("device-filter"), f"{path}.device-filter"),
            devices=self._devices(fields.get("devices"), f"{path}.devices"),
            enabled=enabled is True,
            profiles=self._profiles(fields, f"{path}.mig-devices"),
        )
        return entry if len(self.findings) == before else None

    def _filter(self, value: object, path: str) -> tuple[DeviceId, ...]:
        if value is None or value == "":
            return ()
        listed = cast("list[object]", value) if isinstance(value, list) else [value]
        ids: list[DeviceId] = []
        for each in listed:
            if not isinstance(each, str):
                remedy = 'write the device and the vendor as "0x20B210DE", in quotes'
                self._add(path, quote_value(each), "is no PCI id", remedy)
            elif found := _DEVICE.fullmatch(each):
                ids.append(DeviceId(device=found[1].lower(), subsystem=(found[2] or "").lower()))
            else:  # as with mig-parted, whose own examples have such words: no GPU has this id
                ids.append(DeviceId(device=each))
        return tuple(ids)

    def _devices(self, value: object, path: str) -> tuple[int, ...] | None:
        if value is None or value == "all":
            return None
        remedy = "write all, or a list of the indices of GPUs"
        if not isinstance(value, list):
            self._add(path, quote_value(value), "is neither all nor a list", remedy)
            return None
        indices = cast("list[object]", value)
        for each in indices:
            if not _is_count(each):
                self._add(path, quote_value(each), "is no index of a GPU", remedy)
        return tuple(each for each in indices if isinstance(each, int))

    def _profiles(self, fields: Mapping[str, object], path: str) -> dict[str, int]:
        value = fields.get("mig-devices")
        if fields.get("mig-enabled") is True and "mig-devices" not in fields:
            self._add(
                path, "", "is required where MIG is enabled", "write {} for GPUs without devices"
            )
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._add(path, quote_value(value), "is no mapping", 'write such as {"1g.10gb": 7}')
            return {}
        counts = cast("Mapping[object, object]", value)
        if counts and fields.get("mig-enabled") is False:
            self._add(path, "", "is set although MIG is not enabled", "remove it, or enable MIG")
        profiles: dict[str, int] = {}
        for name, count in counts.items():
            if not isinstance(name, str) or parse_profile(name) is None:
                self._add(path, quote_value(name), "is no MIG profile", "write such as 1g.10gb")
            elif isinstance(count, int) and _is_count(count):
                profiles[name] = count
            else:
                place, remedy = f"{path}.{name}", "write a whole number from 0"
                self._add(place, quote_value(count), "is no count", remedy)
        total = sum(profiles.values())
        if profiles and not total:
            self._add(path, "", "has no device: all counts are 0", "write {}, or set a count")
        if total > MAX_DEVICES:
            self._add(path, str(total), f"is more than {MAX_DEVICES} devices", "ask for fewer")
        return {name: count for name, count in profiles.items() if count}

    def _fields(
        self, content: object, path: str, known: Sequence[str]
    ) -> Mapping[str, object] | None:
        if not isinstance(content, Mapping):
            self._add(path, _value(content), "is no mapping", f"write {', '.join(known)}")
            return None
        fields = cast("Mapping[object, object]", content)
        for name in fields:
            if name not in known:
                self._add(
                    path,
                    quote_value(name),
                    "is no field here",
                    f"remove it; known are {', '.join(known)}",
                )
        return {name: fields[name] for name in known if name in fields}

    def _add(self, field: str, value: str, problem: str, remedy: str) -> None:
        self.findings.append(Finding(field=field, value=value, problem=problem, remedy=remedy))


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _value(value: object) -> str:
    return "" if value is None else quote_value(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
