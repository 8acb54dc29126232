"""What a container runtime asks a plugin of NRI, and what it is answered."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class NewContainer(msgspec.Struct, frozen=True, kw_only=True):
    """A container that is about to be created.

    Its environment is left out: whoever writes a pod could ask for any device with it.
    """

    namespace: str
    pod: str
    name: str
    annotations: Mapping[str, str]
    """Those of the pod."""
    devices: frozenset[str]
    """The CDI devices that it gets already, from the kubelet."""


class InjectionRefused(Exception):
    """The container must not be created. The text is the reason, for people."""


class NriUnavailable(Exception):
    """The runtime does not ask the plugin. The text is the reason, for people."""


class Injector(Protocol):
    """Decides what containers get. Calls do not block: the runtime waits for two seconds."""

    def devices(self, container: NewContainer) -> Sequence[str]:
        """Return the CDI devices that a container gets beside its own.

        Raise `InjectionRefused` where it must not start without what it asks for.
        """
        ...
