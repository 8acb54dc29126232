"""Resources and informers of custom kinds."""

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
    """The coordinates of a custom kind."""

    @property
    def name(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def plural(self) -> str: ...


class CustomObject(views.Object, frozen=True, kw_only=True):
    """A custom object without its managed fields."""

    spec: Any = None

    def __post_init__(self) -> None:
        lean = msgspec.structs.replace(self.metadata, managed_fields=())
        msgspec.structs.force_setattr(self, "metadata", lean)


def custom_resource(kind: CustomKind, view: type[V]) -> Resource[V]:
    return Resource(
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.name,
        namespaced=False,
        view=view,
    )


def custom_resources(kinds: Iterable[CustomKind], view: type[V]) -> Mapping[str, Resource[V]]:
    return {kind.name: custom_resource(kind, view) for kind in kinds}


def informers(
    resources: Mapping[str, Resource[V]], kube: Kube, *, env: Env
) -> Mapping[str, Informer[V]]:
    return {kind: Informer(kube, resource, env=env) for kind, resource in resources.items()}
