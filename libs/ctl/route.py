"""The way to NATS: the address that is given, or the installation's own pods by the kubeconfig."""

import asyncio
import re
import shlex
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from libs.contracts.nats_names import CA_CONFIG_MAP, CA_FILE, PORT, SERVICE
from libs.contracts.node import COMMAND
from libs.contracts.rollout import GROUP
from libs.ctl.cluster import Cluster, cluster_at, open_api_server, open_cluster
from libs.ctl.failures import ExitCode, Failure, NoWayToNats, kube_failure
from libs.ctl.installation import PEOPLE
from libs.ctl.nats_pods import NatsPods
from libs.ctl.options import Access, named_by
from libs.kube import views
from libs.kube.errors import Forbidden, KubeError, NotFound
from libs.kube.portforward import PortForwards
from libs.kube.resources import CONFIG_MAPS

if TYPE_CHECKING:  # slow to import: who finds no way does without
    from libs.bus.credentials import Credentials
    from libs.bus.nats.transport import Dial

DIRECT_SECONDS: Final = 3.0
FORWARDED_SECONDS: Final = 6.0
"""Seconds to sign in: longer where each answer travels through the API server and a kubelet."""
_FILES: Final = {
    "token_file": "token file",
    "ca_file": "CA file",
}
"""Fields of `Access` that name files, and what these are called."""
_ROLE: Final = "sluice-people"
_TOKEN_NAME: Final = f"the token that Kubernetes gave you for {PEOPLE}"
_NOT_IN_NAMES: Final = re.compile("[^a-z0-9.]+")
_LONGEST: Final = 63


class _ConfigMap(views.Object, frozen=True, kw_only=True):
    data: dict[str, str] | None = None


_CONFIG_MAPS: Final = CONFIG_MAPS.viewed_as(_ConfigMap)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """How NATS is reached, and what it is shown."""

    url: str
    credentials: "Credentials"
    without: str = ""
    """Why there is no token, if none could be had."""
    pods: NatsPods | None = None
    """What is dialled instead of the address, through the API server."""

    @property
    def dial(self) -> "Dial | None":
        return None if self.pods is None else self.pods.dial

    @property
    def seconds(self) -> float:
        return DIRECT_SECONDS if self.pods is None else FORWARDED_SECONDS

    def __str__(self) -> str:
        """Return where it leads, and by which way."""
        if self.pods is None:
            return self.url
        return f"{self.url}, through the API server and the pod {self.pods.name}"

    def explained(self, problem: str) -> str:
        """Return why no connection was made, with what is known of this way."""
        if self.pods is None:
            return problem
        if said := self.pods.problem:
            problem += f"; of the pod {self.pods.name} the kubelet says: {said}"
        if "not signed by a CA" in problem and self.credentials.token_name:
            problem += (
                f"; the CA is that of the ConfigMap {CA_CONFIG_MAP}: where cert-manager signs the"
                f" certificate of NATS, name the file of its CA with {named_by('ca_file')}"
            )
        return problem


@asynccontextmanager
async def find_route(access: Access, folder: Path) -> AsyncGenerator[Route]:
    """Find the way to NATS, which lasts until the end of the block; the folder is for its files."""
    _check_files(access)
    if access.nats:
        yield await _to_address(access, folder)
        return
    async with (
        open_api_server(access) as api,
        PortForwards(api, user_agent=COMMAND) as forwards,
    ):
        cluster = cluster_at(api, access)
        if not await cluster.serves_group(GROUP):
            raise NoWayToNats(
                ExitCode.NOT_FOUND,
                f"Sluice is not installed in {cluster.address}: the server does not serve the group"
                f" {GROUP}",
                f"check the context of your kubeconfig, or name NATS with {named_by('nats')}",
            )
        namespace = await cluster.only_namespace()
        pods = NatsPods(cluster.kube, forwards, namespace=namespace)
        try:
            yield await _to_pods(access, folder, cluster, pods, namespace)
        finally:
            pods.close()


async def _to_address(access: Access, folder: Path) -> Route:
    token, without = ("", "") if access.token_file else await _request_token(access)
    return Route(url=access.nats, credentials=_credentials(access, folder, token), without=without)


async def _to_pods(
    access: Access, folder: Path, cluster: Cluster, pods: NatsPods, namespace: str
) -> Route:
    """Ask for all that is needed at once, so that all that is missing can be told."""

    async def request_token() -> str:
        return "" if access.token_file else await cluster.request_token()

    async def read_authority() -> str:
        return "" if access.ca_file else await _read_authority(cluster, namespace)

    token, authority, opened = await asyncio.gather(
        request_token(), read_authority(), pods.open(), return_exceptions=True
    )
    needed = {
        f"request a token for {PEOPLE}": token,
        "reach NATS's pods by a port-forward": opened,
        f"read the ConfigMap {CA_CONFIG_MAP}": authority,
    }
    denied = [what for what, each in needed.items() if isinstance(each, Forbidden)]
    if denied:
        raise await _denied(cluster, namespace, denied, every=len(denied) == len(needed))
    for each in needed.values():
        if isinstance(each, KubeError):
            raise _failure(each, namespace) from each
        if isinstance(each, BaseException):
            raise each
    return Route(
        url=f"tls://{SERVICE}.{namespace}.svc:{PORT}",
        credentials=_credentials(access, folder, str(token), str(authority)),
        pods=pods,
    )


async def _read_authority(cluster: Cluster, namespace: str) -> str:
    found = await cluster.kube.get(_CONFIG_MAPS, CA_CONFIG_MAP, namespace=namespace)
    return (found.data or {}).get(CA_FILE, "")


def _failure(error: KubeError, namespace: str) -> Failure:
    """Return the failure that an error means, where something else than a right is missing."""
    if isinstance(error, NotFound) and error.missing in (PEOPLE, CA_CONFIG_MAP):
        return NoWayToNats(
            ExitCode.NOT_FOUND,
            f"namespace {namespace} has no {error.missing}, as an installation of Sluice has",
            f"correct {named_by('namespace')}, or leave it out",
        )
    return kube_failure(error)


async def _denied(
    cluster: Cluster, namespace: str, denied: Sequence[str], *, every: bool
) -> NoWayToNats:
    remedy = await _how_to_bind(cluster, namespace)
    if not every:
        remedy += "; if you are bound to it, it is of an earlier version: `helm upgrade` renews it"
    problem = f"you may not {', nor '.join(denied)} in namespace {namespace}"
    return NoWayToNats(ExitCode.NOT_ALLOWED, problem, remedy)


async def _how_to_bind(cluster: Cluster, namespace: str) -> str:
    user = await cluster.known_user()
    name = "-".join((_ROLE, *_NOT_IN_NAMES.sub(" ", user.lower()).split()))[:_LONGEST]
    command = (
        f"kubectl -n {namespace} create rolebinding {name.rstrip('-.')} --role={_ROLE}"
        f" --user={shlex.quote(user) if user else 'YOU'}"
    )
    return f"an administrator binds you to the Role {_ROLE} there: `{command}`"


async def _request_token(access: Access) -> tuple[str, str]:
    """Request a token; return it, or why there is none."""
    try:
        async with open_cluster(access) as cluster:
            namespace = await cluster.namespace()
            try:
                return await cluster.request_token(), ""
            except Forbidden:
                how = await _how_to_bind(cluster, namespace)
                return "", f"you may not request a token for {PEOPLE} in {namespace}: {how}"
            except KubeError as error:
                return "", f"no token could be requested for {PEOPLE} in {namespace}: {error}"
    except Failure as failure:
        return "", f"no token could be requested: {failure}"


def _credentials(access: Access, folder: Path, token: str, authority: str = "") -> "Credentials":
    """Return what is given and, in files of the folder, what was got."""
    from libs.bus.credentials import Credentials

    return Credentials(
        token_file=access.token_file or _written(folder / "token", token),
        token_name=_TOKEN_NAME if token else "",
        ca_file=access.ca_file or _written(folder / CA_FILE, authority),
    )


def _written(file: Path, content: str) -> str:
    """Write a file that only the user may read; return its path, or nothing without content."""
    if not content:
        return ""
    file.touch(mode=0o600)
    file.write_text(content)
    return str(file)


def _check_files(access: Access) -> None:
    """Fail for a file that cannot be read; the advice is for a person, not for a pod."""
    for field, title in _FILES.items():
        if not (path := getattr(access, field)):
            continue
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise NoWayToNats(
                ExitCode.NOT_REACHABLE,
                f"cannot read the {title} {path}: {(error.strerror or str(error)).lower()}",
                f"name one that is there and that you may read, with {named_by(field)}",
            ) from None
