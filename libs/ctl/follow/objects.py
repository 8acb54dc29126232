"""The objects that are followed, with what is shown alone: the rest would take megabytes."""

from collections.abc import Iterable
from sys import intern
from typing import Final

import msgspec

from libs.contracts.device import UNKNOWN, DeviceHealth, DeviceSpec
from libs.contracts.health import HealthState
from libs.ctl.cluster import DEVICES
from libs.ctl.text import printable
from libs.fleet.node import ANNOTATIONS, GPU_LABEL, LABELS
from libs.kube import views
from libs.kube.resources import NODES, Resource

_LABELS: Final = (GPU_LABEL, *LABELS)
_READY: Final = views.NodeStatus(conditions=(views.Condition(type="Ready", status="True"),))
_SPECS: Final = {each: views.NodeSpec(unschedulable=each) for each in (True, False)}
_OK: Final = HealthState.OK.value


class FollowedObject(views.Object, frozen=True, kw_only=True, gc=False):
    """A Node: of its spec and its status, only whether it is cordoned and Ready."""

    spec: views.NodeSpec = views.NodeSpec()
    status: views.NodeStatus = views.NodeStatus()

    def __post_init__(self) -> None:
        own, ready = self.metadata, _READY if self.is_ready else views.NodeStatus()
        lean = views.Metadata(
            name=own.name,
            uid=own.uid,
            resource_version=own.resource_version,
            labels=_only(own.labels, _LABELS),
            annotations=_only(own.annotations, ANNOTATIONS),
        )
        msgspec.structs.force_setattr(self, "metadata", lean)
        msgspec.structs.force_setattr(self, "spec", _SPECS[self.spec.unschedulable])
        msgspec.structs.force_setattr(self, "status", ready)

    @property
    def is_ready(self) -> bool:
        conditions = self.status.conditions
        return any((each.type, each.status) == ("Ready", "True") for each in conditions)


def _only(mapping: dict[str, str], keys: Iterable[str]) -> dict[str, str]:
    return {key: mapping[key] for key in keys if key in mapping}


class _DeviceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    health: DeviceHealth | None = None


class FollowedDevice(views.Object, frozen=True, kw_only=True, gc=False):
    """A GPU: of a healthy one, only where it is and what it is.

    Names of nodes and products are shared between its thousands, and so is the verdict `ok`.
    """

    spec: DeviceSpec
    status: _DeviceStatus = _DeviceStatus()

    def __post_init__(self) -> None:
        own, spec = self.metadata, self.spec
        lean = views.Metadata(name=own.name, uid=own.uid, resource_version=own.resource_version)
        msgspec.structs.force_setattr(self, "metadata", lean)
        shared = DeviceSpec(node=intern(spec.node), index=spec.index, product=intern(spec.product))
        msgspec.structs.force_setattr(self, "spec", shared)
        if self.health == _OK:
            msgspec.structs.force_setattr(self, "status", _OK_STATUS)

    @property
    def health(self) -> str:
        return printable(self.status.health.state) if self.status.health else UNKNOWN

    @property
    def is_sick(self) -> bool:
        """Whether a person should look at it; one without a verdict is only counted."""
        return self.health not in (_OK, UNKNOWN)


_OK_STATUS: Final = _DeviceStatus(health=DeviceHealth(state=_OK))


FOLLOWED_NODES: Final = Resource(
    plural=NODES.plural, kind=NODES.kind, namespaced=False, creatable=False, view=FollowedObject
)
FOLLOWED_METADATA: Final = Resource(
    plural=NODES.plural,
    kind=NODES.kind,
    namespaced=False,
    metadata_only=True,
    view=FollowedObject,
)
"""Nodes of which the API server sends the metadata alone, a tenth of them."""
FOLLOWED_DEVICES: Final = Resource(
    group=DEVICES.group,
    version=DEVICES.version,
    plural=DEVICES.plural,
    kind=DEVICES.kind,
    namespaced=False,
    view=FollowedDevice,
)
