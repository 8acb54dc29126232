"""What stands in every namespace: the default account of its pods, and the server's certificate.

Both are put back when somebody takes them away.
"""

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from libs.kube.client import Kube
from libs.kube.errors import AlreadyExists, Forbidden, NotFound
from libs.kube.resources import CONFIG_MAPS, SERVICE_ACCOUNTS, Resource
from libs.kube.views import Object
from libs.runtime.clock import Clock
from libs.testing.cluster.controller_loop import ControllerLoop
from libs.testing.cluster.informers import DEFAULT_ACCOUNT, ROOT_CERTIFICATE, ClusterInformers
from libs.testing.cluster.views import Namespace

if TYPE_CHECKING:
    from libs.kube.cache import Cache

ACCOUNT_USER = "system:serviceaccount:kube-system:service-account-controller"
CERTIFICATE_USER = "system:serviceaccount:kube-system:root-ca-cert-publisher"

_WHAT_FOR = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
    "guaranteed across distributions of Kubernetes clusters."
)


class _DefaultObjectController:
    """One object of a fixed name in each namespace that is not ending."""

    def __init__(
        self,
        informers: ClusterInformers,
        kube: Kube,
        *,
        clock: Clock,
        pieces: "Cache[Object]",
        resource: Resource[Object],
        piece: Mapping[str, Any],
    ) -> None:
        self._namespaces = informers.namespaces
        self._kube = kube
        self._pieces = pieces
        self._resource = resource
        self._piece = piece
        self._work = ControllerLoop(resource.plural, self._put, clock=clock, workers=1)

    async def run(self) -> None:
        """Until it is cancelled."""
        with ExitStack() as stack:
            stack.callback(self._namespaces.on_change(self._namespace_changed))
            stack.callback(self._pieces.on_change(self._piece_changed))
            for namespace in self._namespaces:
                self._namespace_changed(None, namespace)
            await self._work.run()

    def _namespace_changed(self, _before: Namespace | None, after: Namespace | None) -> None:
        if after is not None:
            self._work.queue.add(after.metadata.name)

    def _piece_changed(self, before: Object | None, after: Object | None) -> None:
        if before is not None and after is None:
            self._work.queue.add(before.metadata.namespace)

    async def _put(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.deletion_timestamp:
            return
        if self._pieces.get(f"{name}/{self._piece['metadata']['name']}") is None:
            # There already, or no place any more.
            with suppress(AlreadyExists, Forbidden, NotFound):
                await self._kube.create(self._resource, self._piece, namespace=name)


class DefaultAccountController(_DefaultObjectController):
    """As whom pods speak that name nobody."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        super().__init__(
            informers,
            kube,
            clock=clock,
            pieces=informers.accounts,
            resource=SERVICE_ACCOUNTS,
            piece={"metadata": {"name": DEFAULT_ACCOUNT}},
        )


class RootCertificatePublisher(_DefaultObjectController):
    """By what pods would know the server; the simulated one has none."""

    def __init__(self, informers: ClusterInformers, kube: Kube, *, clock: Clock) -> None:
        told = {"kubernetes.io/description": _WHAT_FOR}
        super().__init__(
            informers,
            kube,
            clock=clock,
            pieces=informers.certificates,
            resource=CONFIG_MAPS,
            piece={
                "metadata": {"name": ROOT_CERTIFICATE, "annotations": told},
                "data": {"ca.crt": ""},
            },
        )
