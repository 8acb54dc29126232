"""Custom kinds, as their owners describe them; what people write in them is not known here."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from libs.kube import views
from libs.kube.client import Kube
from libs.kube.informer import Informer
from libs.kube.resources import Resource
from libs.runtime.env import Env

V = TypeVar("V", bound=views.Object)


class CustomKind(Protocol):
    """What has to be said of a kind for its objects to be found."""

    @property
    def name(self) -> str:
        """As objects say it."""
        ...

    @property
    def group(self) -> str:
        """Whose it is."""
        ...

    @property
    def version(self) -> str:
        """The one that is read and written."""
        ...

    @property
    def plural(self) -> str:
        """As paths say it."""
        ...


class CustomObject(views.Object, frozen=True, kw_only=True):
    """An object as somebody wrote it; by which hands is not kept."""

    spec: Any = None

    def __post_init__(self) -> None:
        lean = msgspec.structs.replace(self.metadata, managed_fields=())
        msgspec.structs.force_setattr(self, "metadata", lean)


def custom_resource(kind: CustomKind, view: type[V]) -> Resource[V]:
    """A kind of the whole cluster, as `view` reads it."""
    return Resource(
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.name,
        namespaced=False,
        view=view,
    )


def custom_resources(kinds: Iterable[CustomKind], view: type[V]) -> Mapping[str, Resource[V]]:
    """Several that are read alike, by name."""
    return {kind.name: custom_resource(kind, view) for kind in kinds}


def informers(
    resources: Mapping[str, Resource[V]], kube: Kube, *, env: Env
) -> Mapping[str, Informer[V]]:
    """The same, to be followed."""
    return {kind: Informer(kube, resource, env=env) for kind, resource in resources.items()}
