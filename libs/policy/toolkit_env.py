"""The variables of NVIDIA's container toolkit (`toolkit.env` of a ClusterPolicy).

Those that configure a container runtime are set in the driver agent; a value that it could not read
is refused here, before its pods fail. Every other variable is named with the reason.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from libs.policy.findings import Finding, quote_value, without_effect
from libs.policy.kinds.agents import LEGACY_CLASS, NRI_GPUS, NRI_MANAGEMENT
from libs.policy.kinds.common import EnvVar

_BOOLEANS: Final = frozenset(("true", "false", "1", "0"))
_MODES: Final = ("signal", "systemd", "none")


class ToolkitVariable(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one variable."""

    effect: str = ""
    because: str = ""
    """Why it has no effect."""
    takes: Callable[[str], bool] = lambda _: True
    values: str = ""
    """The values that it takes, as a remedy says them."""
    before: str = ""
    """The older name, which has no effect beside this one."""


def _is_path(value: str) -> bool:
    return value.startswith("/") and ".." not in value.split("/")


def _path(effect: str, *, before: str = "") -> ToolkitVariable:
    values = "an absolute path without .."
    return ToolkitVariable(effect=effect, takes=_is_path, values=values, before=before)


def _handler(*, before: str = "") -> ToolkitVariable:
    return ToolkitVariable(
        effect="the first handler; by default operator.runtimeClass",
        takes=lambda value: value != LEGACY_CLASS,
        values=f"any name but {LEGACY_CLASS}, a runtime that Sluice does not have",
        before=before,
    )


_MAIN_FILE: Final = "the runtime's main file; by default that of its command line"
_SOCKET: Final = "the runtime's socket; by default the only one of containerd, k3s and CRI-O"
_NO_PROGRAMS: Final = "Sluice installs no programs for containers on the host"
_NO_RUNTIME: Final = "the handlers are the default runtime by another name, so it stays the default"
_CDI_DECIDES: Final = "cdi.enabled decides, and the runtime's own CDI is switched on with it"
_OWN_SPECS: Final = (
    "the driver agent writes its CDI specs into /var/run/cdi, under their usual kinds"
)
_OWN_NRI: Final = "the driver agent's own plugin of NRI has the usual socket and index"
_NO_INJECTION: Final = "Sluice's containers get no GPUs from a runtime"
_UNKNOWN: Final = ToolkitVariable(because="the driver agent does not read it")

VARIABLES: Final[Mapping[str, ToolkitVariable]] = {
    "RUNTIME_CONFIG": _path(_MAIN_FILE, before="CONTAINERD_CONFIG"),
    "CONTAINERD_CONFIG": _path(_MAIN_FILE),
    "RUNTIME_DROP_IN_CONFIG": _path("the drop-in file, on the host"),
    "RUNTIME_SOCKET": _path(_SOCKET, before="CONTAINERD_SOCKET"),
    "CONTAINERD_SOCKET": _path(_SOCKET),
    "NVIDIA_RUNTIME_NAME": _handler(before="CONTAINERD_RUNTIME_CLASS"),
    "CONTAINERD_RUNTIME_CLASS": _handler(),
    "RUNTIME_RESTART_MODE": ToolkitVariable(
        effect="how the runtime is restarted; by default by systemd, where it is a unit of that",
        takes=lambda value: value in _MODES,
        values=" or ".join((", ".join(_MODES[:-1]), _MODES[-1])),
    ),
    "NO_RUNTIME_CONFIG": ToolkitVariable(
        effect="true: the runtime is not configured, and what was configured is taken back",
        takes=lambda value: value.lower() in _BOOLEANS,
        values="true or false",
    ),
    NRI_GPUS: ToolkitVariable(
        effect="with cdi.nriPluginEnabled: namespaces, with commas between them, whose pods may"
        " have GPUs by annotation"
    ),
    NRI_MANAGEMENT: ToolkitVariable(
        effect="with cdi.nriPluginEnabled: namespaces, with commas between them, whose pods may"
        " have management devices by annotation"
    ),
    "RUNTIME": ToolkitVariable(
        because="the runtime is found by its socket, which RUNTIME_SOCKET can name; containerd and"
        " CRI-O are configured, Docker is not"
    ),
    "RUNTIME_DROP_IN_CONFIG_HOST_PATH": ToolkitVariable(
        because="RUNTIME_DROP_IN_CONFIG already is the path on the host"
    ),
    "RUNTIME_CONFIG_SOURCE": ToolkitVariable(
        because="the runtime is asked what it knows, and its files are read"
    ),
    "CRIO_CONFIG_MODE": ToolkitVariable(because="CRI-O gets a drop-in file, and no hook"),
    "RUNTIME_ENABLE_CDI": ToolkitVariable(because=_CDI_DECIDES),
    "CDI_ENABLED": ToolkitVariable(because=_CDI_DECIDES),
    "NVIDIA_RUNTIME_SET_AS_DEFAULT": ToolkitVariable(because=_NO_RUNTIME),
    "CONTAINERD_SET_AS_DEFAULT": ToolkitVariable(because=_NO_RUNTIME),
    "CDI_OUTPUT_DIR": ToolkitVariable(because=_OWN_SPECS),
    "CDI_KIND": ToolkitVariable(because=_OWN_SPECS),
    "CREATE_DEVICE_NODES": ToolkitVariable(
        because="the driver agent makes all device files of the driver that are missing"
    ),
    "ENABLE_NRI_PLUGIN": ToolkitVariable(because="cdi.nriPluginEnabled decides"),
    "NRI_SOCKET": ToolkitVariable(because=_OWN_NRI),
    "NRI_PLUGIN_INDEX": ToolkitVariable(because=_OWN_NRI),
    "NRI_NAMESPACE": ToolkitVariable(
        because=f"Sluice's own namespace is always allowed, and {NRI_MANAGEMENT} names others"
    ),
    "ROOT": ToolkitVariable(because=_NO_PROGRAMS),
    "TOOLKIT_PID_FILE": ToolkitVariable(because=_NO_PROGRAMS),
    "NO_DAEMON": ToolkitVariable(because="the driver agent keeps running"),
    "NVIDIA_CONTAINER_RUNTIME_MODE": ToolkitVariable(because=_NO_PROGRAMS),
    "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND": ToolkitVariable(because=_NO_PROGRAMS),
    "NVIDIA_VISIBLE_DEVICES": ToolkitVariable(because=_NO_INJECTION),
}
"""The variables of the toolkit's container, by name."""


def check_toolkit_env(env: Iterable[EnvVar], *, nri: bool) -> Iterator[Finding]:
    """Yield a finding for each variable that is not obeyed; `nri`: its plugin is switched on."""
    values = {variable.name: variable.value for variable in env}
    shadowed = {
        each.before: f"{name} is set too, and counts"
        for name, each in VARIABLES.items()
        if each.before and values.get(name)
    }
    if not nri:
        shadowed |= dict.fromkeys((NRI_GPUS, NRI_MANAGEMENT), "cdi.nriPluginEnabled is off")
    for name, value in values.items():
        variable = VARIABLES.get(name, _UNKNOWN)
        field = f"spec.toolkit.env[{name}]"
        if value and not variable.takes(value):
            yield Finding(
                field=field,
                value=quote_value(value),
                problem="cannot be obeyed",
                remedy=f"write {variable.values}",
            )
        elif because := variable.because or shadowed.get(name, ""):
            yield without_effect(field, value, because)
