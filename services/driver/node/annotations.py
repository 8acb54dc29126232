"""What annotations of pods give their containers, without the device plugin.

Whoever may create pods in a namespace writes their annotations, and no quota counts these devices.
So each namespace must be listed, and a container that asks in vain is not created: it would run
without the devices otherwise. The environment of a container asks for nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from libs.host.cdi.published import GPU_KIND, MANAGEMENT_KIND
from libs.host.nri.port import InjectionRefused, NewContainer
from libs.runtime.logs import logger

DOMAIN: Final = "nvidia.cdi.k8s.io"
MAX_DEVICES: Final = 128
"""The most devices of one container: all MIG devices of 16 GPUs."""
MAX_BYTES: Final = 16 << 10
"""The longest value of an annotation that is read."""
_NAME: Final = re.compile(r"([a-z.]{1,63}/[a-z]{1,63})=[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_VARIABLES: Final = {
    GPU_KIND: "NRI_GPU_CDI_DEVICE_NAMESPACES",
    MANAGEMENT_KIND: "NRI_MANAGEMENT_CDI_DEVICE_NAMESPACES",
}
"""What a policy lists the namespaces of each kind in."""

_log = logger()


class AnnotatedDevices:
    """Gives devices to the containers of listed namespaces."""

    def __init__(
        self,
        *,
        gpus: Iterable[str],
        management: Iterable[str],
        unavailable: Callable[[], str],
    ) -> None:
        """Take the namespaces of each kind.

        `unavailable` returns why no container can have a GPU now; empty if one can.
        """
        self._namespaces: Mapping[str, frozenset[str]] = {
            GPU_KIND: frozenset(gpus),
            MANAGEMENT_KIND: frozenset(management),
        }
        self._unavailable = unavailable

    def devices(self, container: NewContainer) -> Sequence[str]:
        """Return the CDI devices that annotations give this container.

        Raise `InjectionRefused`, so that no container starts without the GPU that it asks for.
        """
        found = annotation_for(container.annotations, container.name)
        if found is None:
            return ()
        key, value = found
        try:
            names = self._allowed(container.namespace, value)
        except InjectionRefused as error:
            problem = f"the annotation {key} {error}"
            _log.warning("container refused", **_context(container), problem=problem)
            raise InjectionRefused(problem) from None
        given = tuple(name for name in names if name not in container.devices)
        _log.info("devices given by annotation", **_context(container), devices=given)
        return given

    def _allowed(self, namespace: str, value: str) -> Sequence[str]:
        names = parse(value)
        for kind in dict.fromkeys(name.partition("=")[0] for name in names):
            if namespace not in self._namespaces[kind]:
                raise InjectionRefused(
                    f"asks for devices of {kind}, which pods of the namespace {namespace} may not"
                    f" have: list the namespace in {_VARIABLES[kind]} in spec.toolkit.env of the"
                    " ClusterPolicy, or remove the annotation"
                )
        why = self._unavailable()
        if why and any(name.startswith(f"{GPU_KIND}=") for name in names):
            raise InjectionRefused(f"asks for a GPU, which no container can have now: {why}")
        return names


def annotation_for(annotations: Mapping[str, str], container: str) -> tuple[str, str] | None:
    """Return the annotation that applies to a container: its own goes before that of all."""
    for key in (f"{DOMAIN}/container.{container}", f"{DOMAIN}/pod", DOMAIN):
        if key in annotations:
            return key, annotations[key]
    return None


def parse(value: str) -> Sequence[str]:
    """Return the names of devices in an annotation, each once, or raise `InjectionRefused`."""
    if len(value) > MAX_BYTES:
        raise InjectionRefused(f"is longer than {MAX_BYTES >> 10} KiB")
    names = tuple(dict.fromkeys(value.split(",")))
    if len(names) > MAX_DEVICES:
        raise InjectionRefused(f"names {len(names)} devices: {MAX_DEVICES} are the most")
    for name in names:
        matched = _NAME.fullmatch(name)
        if matched is None or matched[1] not in _VARIABLES:
            raise InjectionRefused(
                f"names {name[:100]!a}, which is no device of {GPU_KIND} or"
                f" {MANAGEMENT_KIND}: write names such as {GPU_KIND}=GPU-… or"
                f" {MANAGEMENT_KIND}=all, with commas between them"
            )
    return names


def _context(container: NewContainer) -> dict[str, str]:
    return {
        "namespace": container.namespace,
        "pod": container.pod,
        "container": container.name,
    }
