"""The variables of NVIDIA's device plugin (`devicePlugin.env` of a ClusterPolicy).

A value that the device plugin could not read is refused here, before its pods fail.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from libs.policy.findings import Finding, quote_value, without_effect
from libs.policy.kinds.agents import PLUGIN_VARIABLES
from libs.policy.kinds.common import EnvVar
from libs.policy.plugin_config.config import IdStrategy, ListStrategy, SharingPolicy

_BOOLEANS: Final = ("true", "false", "1", "0")
_SWITCHES: Final = ("GDRCOPY_ENABLED", "GDS_ENABLED", "MOFED_ENABLED", "PASS_DEVICE_SPECS")
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "DEVICE_ID_STRATEGY": tuple(IdStrategy),
    "DEVICE_LIST_STRATEGY": tuple(ListStrategy),
    "SHARED_DEVICES_ALLOCATION_POLICY": tuple(SharingPolicy),
}


def check_plugin_env(env: Iterable[EnvVar]) -> Iterator[Finding]:
    """Yield a finding for each variable that has no effect, and for each value of no use."""
    for name, value in {each.name: each.value for each in env}.items():
        if name not in PLUGIN_VARIABLES:
            because = f"the device plugin reads {', '.join(PLUGIN_VARIABLES)} alone"
            yield without_effect("spec.devicePlugin.env", name, because)
        elif value and (allowed := _allowed_instead(name, value)):
            yield Finding(
                field=f"spec.devicePlugin.env[{name}]",
                value=quote_value(value),
                problem="cannot be obeyed",
                remedy=f"write {allowed}",
            )


def _allowed_instead(name: str, value: str) -> str:
    """Return what a variable takes; empty if it takes this value."""
    if name in _SWITCHES:
        return "" if value.lower() in _BOOLEANS else "true or false"
    choices = _CHOICES.get(name)
    if choices is None:
        return ""
    is_list = name == "DEVICE_LIST_STRATEGY"
    given = [part.strip() for part in value.split(",")] if is_list else [value]
    what = "some of these, with commas between them: " if is_list else "one of these: "
    return "" if set(given) <= set(choices) else f"{what}{', '.join(choices)}"
