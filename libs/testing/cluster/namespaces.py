"""Controllers of the objects that every namespace has: an account and a certificate."""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from libs.kube.client import Kube
from libs.kube.errors import AlreadyExists, Forbidden, NotFound
from libs.kube.resources import CONFIG_MAPS, SERVICE_ACCOUNTS, Resource
from libs.kube.views import Object
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import DEFAULT_ACCOUNT, ROOT_CERTIFICATE, ClusterInformers

if TYPE_CHECKING:
    from libs.kube.cache import Cache

ACCOUNT_USER = "system:serviceaccount:kube-system:service-account-controller"
CERTIFICATE_USER = "system:serviceaccount:kube-system:root-ca-cert-publisher"

_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
    "guaranteed across distributions of Kubernetes clusters."
)


class _DefaultObjectController:
    """Keeps one object of a fixed name in each namespace that is not terminating."""

    def __init__(
        self,
        informers: ClusterInformers,
        kube: Kube,
        *,
        clock: Clock,
        cache: "Cache[Object]",
        resource: Resource[Object],
        obj: Mapping[str, Any],
    ) -> None:
        self._namespaces = informers.namespaces
        self._kube = kube
        self._cache = cache
        self._resource = resource
        self._object = obj
        self._loop = ControllerLoop(resource.plural, self._reconcile, clock=clock, workers=1)

    async def run(self) -> None:
        await self._loop.run(
            (self._namespaces, self._namespace_changed), (self._cache, self._object_deleted)
        )

    def _namespace_changed(self, _before: Object | None, after: Object | None) -> None:
        if after is not None:
            self._loop.queue.add(after.metadata.name)

    def _object_deleted(self, before: Object | None, after: Object | None) -> None:
        if before is not None and after is None:
            self._loop.queue.add(before.metadata.namespace)

    async def _reconcile(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.deletion_timestamp:
            return
        if self._cache.get(f"{name}/{self._object['metadata']['name']}") is None:
            # It exists already, or its namespace is gone.
            with suppress(AlreadyExists, Forbidden, NotFound):
                await self._kube.create(self._resource, self._object, namespace=name)


class DefaultAccountController(_DefaultObjectController):
    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        super().__init__(
            informers,
            kube,
            clock=clock,
            cache=informers.accounts,
            resource=SERVICE_ACCOUNTS,
            obj={"metadata": {"name": DEFAULT_ACCOUNT}},
        )


class RootCertificatePublisher(_DefaultObjectController):
    """Publishes an empty certificate: the simulated server has none."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        annotations = {"kubernetes.io/description": _DESCRIPTION}
        super().__init__(
            informers,
            kube,
            clock=clock,
            cache=informers.certificates,
            resource=CONFIG_MAPS,
            obj={
                "metadata": {"name": ROOT_CERTIFICATE, "annotations": annotations},
                "data": {"ca.crt": ""},
            },
        )
