"""Kubernetes with the user's credentials: what the command reads, and its guarded writes."""

import getpass
import logging
import os
import re
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack
from urllib.parse import urlsplit

import msgspec

from libs.contracts import device, rollout
from libs.contracts.node import COMMAND
from libs.ctl.checks import DRIVER_APP, Right
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure, kube_failure
from libs.ctl.installation import PEOPLE, find_installations, only_installation
from libs.ctl.kubeconfig import kubeconfig_path, read_plain
from libs.ctl.observe.objects import DAEMON_SETS
from libs.ctl.options import Access
from libs.ctl.versions import versions_of
from libs.fleet.pools import ROLLOUTS, Rollout
from libs.kube import views
from libs.kube.client import Kube
from libs.kube.config import check_addresses
from libs.kube.connect import AuthLoader, open_transport
from libs.kube.errors import Conflict, KubeError, NotFound, UnknownKind
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.reads import Page
from libs.kube.resources import EVENTS, NODES, SERVICE_ACCOUNTS, Resource, Selection
from libs.runtime.clock import SystemClock

if TYPE_CHECKING:
    from libs.kube.cache import Cache
    from libs.runtime.env import Env

DEFAULT_NAMESPACE: Final = "sluice"
AUDIENCE: Final = "sluice"
TOKEN_SECONDS: Final = 3600
_NAME: Final = re.compile("[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""What a name has to be for a path of the API server."""
_TRIES: Final = 8
"""A Rollout that is being written all the time is read again this often."""

A = TypeVar("A")
V = TypeVar("V", bound=views.Object)


class Device(views.Object, frozen=True, kw_only=True):
    spec: device.DeviceSpec
    status: device.DeviceStatus = device.DeviceStatus()


class InvolvedObject(views.View, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""


class NodeEvent(views.Object, frozen=True, kw_only=True):
    """An Event about a Node."""

    involved_object: InvolvedObject = InvolvedObject()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def at(self) -> str:
        return self.last_timestamp or self.event_time or self.metadata.creation_timestamp or ""


class _TokenStatus(msgspec.Struct):
    token: str


class _TokenAnswer(msgspec.Struct):
    status: _TokenStatus


class _VersionAnswer(views.View, frozen=True):
    git_version: str


class _UserInfo(msgspec.Struct):
    username: str = ""


class _SelfStatus(msgspec.Struct, rename="camel"):
    user_info: _UserInfo


class _SelfAnswer(msgspec.Struct):
    status: _SelfStatus


class _ReviewStatus(msgspec.Struct):
    allowed: bool


class _ReviewAnswer(msgspec.Struct):
    status: _ReviewStatus


_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ACCESS_REVIEW: Final = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
_SELF_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_SELF_REVIEW: Final = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
DEVICES: Final = Resource(
    group=device.GROUP,
    version=device.VERSION,
    plural=device.PLURAL,
    kind=device.KIND,
    namespaced=False,
    view=Device,
)
LABELLED_NODES: Final = Resource(
    plural="nodes", kind="Node", namespaced=False, metadata_only=True, view=views.Object
)
NODE_EVENTS: Final = Resource(plural=EVENTS.plural, kind=EVENTS.kind, view=NodeEvent)


@contextmanager
def _failures(*, but: type[KubeError] | tuple[()] = ()) -> Generator[None]:
    """Make errors of the API server failures of the command, `but` those of a kind."""
    try:
        yield
    except but:
        raise
    except KubeError as error:
        raise kube_failure(error) from error


class Cluster:
    """One API server, as the user. Errors are failures of the command."""

    def __init__(self, kube: Kube, *, url: str, namespace: str, kubeconfig: str = "") -> None:
        self._kube = kube
        self._kubeconfig = kubeconfig
        self.address = _without_path(url)
        """The server, without a path, which may hold a secret."""
        self._namespace = namespace

    @property
    def kube(self) -> Kube:
        """The client, for caches; its errors are not failures of the command yet."""
        return self._kube

    async def namespace(self) -> str:
        """Return the namespace of Sluice: as given, where its account is, or the usual one."""
        if not self._namespace:
            try:
                found = await find_installations(self._kube, self._kubeconfig)
            except KubeError:
                found = ()
            self._namespace = found[0] if found else DEFAULT_NAMESPACE
        return self._namespace

    async def only_namespace(self) -> str:
        """Return the namespace of the only installation, or as given; fail if that is not known."""
        if not self._namespace:
            self._namespace = await only_installation(
                self._kube, self._kubeconfig, address=self.address
            )
        return self._namespace

    async def rollouts(self) -> tuple[Rollout, ...]:
        """Return all Rollouts; fail with one clear line where Sluice is not installed."""
        try:
            with _failures(but=UnknownKind):
                listed = await self._kube.list_all(ROLLOUTS)
        except UnknownKind as error:
            raise Failure(
                ExitCode.NOT_FOUND,
                f"Sluice is not installed in {self.address}: {error.message}",
            ) from error
        return _readable(listed, ROLLOUTS)

    async def server_version(self) -> str:
        """Return the API server's version, such as `v1.34.2`."""
        with _failures():
            answer = await self._kube.request("GET", "/version")
        return self._decoded(answer, _VersionAnswer).git_version

    async def serves(self, resource: Resource[Any]) -> bool:
        """Report whether the API server knows a kind."""
        with suppress(UnknownKind), _failures(but=UnknownKind):
            await self._kube.list_page(resource, limit=1)
            return True
        return False

    async def user(self) -> str:
        """Return the user's name as the API server knows it, otherwise as this machine does."""
        return await self.known_user() or f"{_local_user()}@{socket.gethostname()}"

    async def known_user(self) -> str:
        """Return the user's name as the API server knows it; empty if it does not say."""
        try:
            answer = await self._kube.request("POST", _SELF_REVIEWS, body=_SELF_REVIEW)
            return msgspec.json.decode(answer, type=_SelfAnswer).status.user_info.username
        except (KubeError, msgspec.DecodeError):  # as a server before 1.28
            return ""

    def _decoded(self, answer: bytes, as_type: type[A]) -> A:
        try:
            return msgspec.json.decode(answer, type=as_type)
        except msgspec.DecodeError as error:
            raise Failure(
                ExitCode.NOT_REACHABLE,
                f"{self.address} does not answer as an API server of Kubernetes: {error}",
            ) from error

    async def check_installed(self) -> None:
        """Fail where Sluice is not installed, so that nothing would act on what is written."""
        if not await self.serves_group(rollout.GROUP):
            raise Failure(
                ExitCode.NOT_FOUND,
                f"Sluice is not installed in {self.address}: the server does not serve the group"
                f" {rollout.GROUP}, so that nothing would act on this",
            )

    async def serves_group(self, group: str) -> bool:
        """Report whether the API server knows a group; whoever is signed in may ask that."""
        with suppress(NotFound), _failures(but=NotFound):
            await self._kube.request("GET", f"/apis/{group}")
            return True
        return False

    async def may(self, right: Right, namespace: str) -> bool:
        """Report whether the user has a right."""
        attributes = {
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "subresource": right.subresource,
            "name": right.name,
            "namespace": namespace if right.name else "",
        }
        with _failures():
            answer = await self._kube.request(
                "POST",
                _ACCESS_REVIEWS,
                body={**_ACCESS_REVIEW, "spec": {"resourceAttributes": attributes}},
            )
        return self._decoded(answer, _ReviewAnswer).status.allowed

    async def list(
        self, resource: Resource[V], *, labels: str = "", namespace: str = "", fields: str = ""
    ) -> tuple[V, ...]:
        with _failures():
            listed = await self._kube.list_all(
                resource, labels=labels, namespace=namespace, fields=fields
            )
        return _readable(listed, resource)

    async def node(self, name: str) -> views.Node:
        """Return a Node; fail with the remedy if there is none."""
        absent = Failure(
            ExitCode.NOT_FOUND,
            f"there is no Node {name!r}; `kubectl get nodes` lists their full names",
        )
        if not _NAME.fullmatch(name):
            raise absent
        try:
            return await self._kube.get(NODES, name)
        except UnknownKind as error:
            raise kube_failure(error) from error
        except NotFound as error:
            raise absent from error
        except KubeError as error:
            raise kube_failure(error) from error

    async def node_events(self, name: str) -> tuple[NodeEvent, ...]:
        """Return the Events about a Node, the oldest first."""
        fields = f"involvedObject.kind=Node,involvedObject.name={name}"
        with _failures():
            listed = await self._kube.list_all(NODE_EVENTS, fields=fields)
        return tuple(sorted(listed.items, key=lambda each: each.last_timestamp or ""))

    async def versions(self, rollouts: tuple[Rollout, ...]) -> Mapping[str, str]:
        """Return the driver versions of targets, also of those that are not wanted any more."""
        try:
            listed = await self._kube.list_all(
                DAEMON_SETS, namespace=await self.namespace(), labels=f"app={DRIVER_APP}"
            )
            daemon_sets = listed.items
        except KubeError:
            daemon_sets = ()
        return versions_of(
            ((each.status.target, each.status.version) for each in rollouts), daemon_sets
        )

    def cache(
        self, resource: Resource[V], *, env: "Env", **selection: Unpack[Selection]
    ) -> "Cache[V]":
        """Return a cache of a kind, which follows the kind while it runs."""
        from libs.kube.cache import Cache

        return Cache(self._kube, resource, env=env, **selection)

    async def request_token(self) -> str:
        """Request a token for NATS; raise `KubeError`."""
        path = SERVICE_ACCOUNTS.path(
            namespace=await self.namespace(), name=PEOPLE, subresource="token"
        )
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_SECONDS},
        }
        answer = await self._kube.request("POST", path, body=body)
        return self._decoded(answer, _TokenAnswer).status.token

    async def write(self, resource: Resource[V], name: str, decide: Callable[[V], Edit]) -> Edit:
        """Write what `decide` says about the object as it is now, and return it.

        The write names the object's uid and revision. If the object has changed meanwhile,
        `decide` judges it again.
        """
        for _ in range(_TRIES):
            try:
                seen = await self._kube.get(resource, name)
                edit = decide(seen)
                if edit.patch:
                    change = _with_uid(edit.patch, seen.metadata.uid)
                    revision = seen.metadata.resource_version
                    await self._kube.merge(resource, name, change, resource_version=revision)
            except Conflict:
                continue
            except KubeError as error:
                raise kube_failure(error) from error
            return edit
        raise Failure(
            ExitCode.REFUSED,
            f"{resource.kind} {name} changed each of {_TRIES} times while it was written; nothing"
            " was changed: try again",
        )


def _local_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        return "somebody"


def _readable(page: Page[V], resource: Resource[V]) -> tuple[V, ...]:
    """Return the objects by name; fail with the first that cannot be read."""
    for each in page.unreadable:
        raise Failure(
            ExitCode.UNEXPECTED,
            f"{resource.kind} {each.key} cannot be read: {each.problem}; is this command older than"
            " the services?",
        )
    return tuple(sorted(page.items, key=lambda each: each.metadata.name))


def _without_path(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:  # a bracket without its other: a request will name the address
        return url
    return f"{parts.scheme}://{parts.netloc}"


def _with_uid(patch: Mapping[str, Any], uid: str) -> dict[str, Any]:
    return {**patch, "metadata": {**patch.get("metadata", {}), "uid": uid}}


@asynccontextmanager
async def open_cluster(access: Access) -> AsyncGenerator[Cluster]:
    """Connect with the kubeconfig that `access` or the environment names. Nothing is sent yet."""
    async with open_api_server(access) as transport:
        yield cluster_at(transport, access)


def cluster_at(transport: HttpTransport, access: Access) -> Cluster:
    kube = Kube(transport, manager=COMMAND, clock=SystemClock())
    return Cluster(
        kube, url=transport.url, namespace=access.namespace, kubeconfig=access.kubeconfig
    )


@asynccontextmanager
async def open_api_server(access: Access) -> AsyncGenerator[HttpTransport]:
    """Open a transport with the kubeconfig. Nothing is sent yet."""
    try:
        transport = await _open(access)
    except KubeError as error:
        raise kube_failure(error) from error
    async with transport:
        yield transport


async def _open(access: Access) -> HttpTransport:
    """Connect; without the library, which is slow to import, where no plugin is needed."""
    path = kubeconfig_path(access.kubeconfig, os.environ)
    plain = read_plain(path) if path is not None else None
    if plain is None:
        # What the library logs of a failed plugin is told by the failure, too.
        logging.getLogger("kubernetes_asyncio").setLevel(logging.CRITICAL)
        given = path if access.kubeconfig else None
        return await open_transport(clock=SystemClock(), kubeconfig=given)
    check_addresses(plain, f"kubeconfig {path}")
    auth = AuthLoader().load(plain)
    return HttpTransport(
        plain.url,
        credentials=StaticToken(plain.token.removeprefix("Bearer "), tls=auth.tls),
        proxy=plain.proxy,
        server_name=plain.server_name,
    )
