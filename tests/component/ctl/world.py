"""The command on a simulated API server over HTTP, and a real nats-server with sign-in.

The scheduler's answers are given; its side of the bus is the real one.
"""

import asyncio
import contextlib
import io
import os
import random
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import msgspec

from demo.admin import path_of
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.queries import QueryHandlers, QueryResponder
from libs.contracts import subjects
from libs.contracts.events import Event, EventBody
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.node import STATE_LABEL, LeaseOwner, NodeLease, NodeRecord
from libs.contracts.subjects import STREAMS
from libs.ctl.command import main
from libs.kube.client import APPLY_PATCH, MERGE_PATCH, Kube
from libs.kube.resources import NODES
from libs.policy.crds import CEL_RULES, crd_manifests
from libs.runtime.clock import SystemClock
from libs.runtime.env import SeededIds
from libs.testing.apiserver.http import HttpFrontend, serve_http
from libs.testing.apiserver.server import ApiServer
from libs.testing.nats import NatsServer
from libs.testing.sign_in import TokenSignIn, signed_nats
from libs.testing.simulation import make_env
from tests.builders.fleet import written

POOL = "clusterpolicy-cluster-policy"
OLD, NEW = "1" * 32, "2" * 32
OLD_VERSION, NEW_VERSION = "570.86.15", "580.95.05"
T0 = 1_800_000_000.0
PERSON = "person"
_POLICY = path_of("nvidia.com/v1", "ClusterPolicy", name="cluster-policy")
POLICY_FILE = """\
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy}
spec:
  driver:
    version: %s
"""
NO_ADDRESSES = dict.fromkeys(("SLUICE_NATS_URL", "SLUICE_NATS_TOKEN_FILE"), "")


class Ended(msgspec.Struct, frozen=True):
    """How a run of the command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return msgspec.json.decode(self.out)


class World:
    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        clock = SystemClock()
        self.folder = folder
        self.server = ApiServer(
            clock=clock, ids=SeededIds(random.Random(2)), random=random.Random(1), rules=CEL_RULES
        )
        self.kube = Kube(self.server.transport(user=PERSON), manager="kubectl", clock=clock)
        self._stack = stack
        self.environ: dict[str, str] = {**NO_ADDRESSES, "NO_COLOR": "1", "COLUMNS": "200"}

    async def serve(self) -> HttpFrontend:
        """Listen, and let the command use a kubeconfig of the person."""
        http = await self._stack.enter_async_context(serve_http(self.server))
        self.environ["KUBECONFIG"] = str(http.kubeconfig(self.folder, PERSON))
        return http

    async def start_nats(self, *agents: Identity) -> NatsServer:
        """Start a NATS server that admits the scheduler, people, and these agents."""
        scheduler, person = Identity(writer=Writer.SCHEDULER), Identity(writer=Writer.CTL)
        self.sign_in = TokenSignIn((scheduler, person, *agents), self.folder)
        nats = await self._stack.enter_async_context(signed_nats(self.sign_in))
        token = self.sign_in.credentials(person).token_file
        self.environ |= {"SLUICE_NATS_URL": nats.url, "SLUICE_NATS_TOKEN_FILE": token}
        self.bus = await self.connect(scheduler)
        for stream in STREAMS:
            await self.bus.ensure(stream)
        return nats

    async def connect(self, identity: Identity) -> NatsBus:
        """Connect an identity until the end of the test."""
        return await self._stack.enter_async_context(
            connect(
                url=self.environ["SLUICE_NATS_URL"],
                identity=identity,
                env=make_env(),
                credentials=self.sign_in.credentials(identity),
            )
        )

    async def answer(self, handlers: QueryHandlers, *, until: AsyncExitStack | None = None) -> None:
        """Answer queries as the scheduler, until the end of the test or of `until`."""
        responder = QueryResponder(
            bus=self.bus,
            env=make_env(),
            name="scheduler",
            version="1.2.3",
            handlers=handlers,
            concurrent=4,
        )
        await (until or self._stack).enter_async_context(responder)

    async def publish(self, *events: tuple[EventBody, str, str]) -> None:
        """Store events of the scheduler: body, message and node."""
        for number, (body, message, node) in enumerate(events):
            event = Event.of(
                body,
                id=f"{number}",
                at=T0 + number,
                writer=Writer.SCHEDULER,
                message=message,
                node=node,
            )
            await self.store(event)

    async def store(self, *events: Event, bus: NatsBus | None = None) -> None:
        """Store events in the stream, as their writers would: by default the scheduler."""
        for event in events:
            subject = subjects.Event(
                cluster="default", node=event.node, writer=event.writer, kind=event.kind
            )
            await (bus or self.bus).store(subjects.EVENTS, str(subject), encode(event), id=event.id)

    async def install(self) -> None:
        for definition in crd_manifests().values():
            await self.apply(definition)

    async def apply(self, obj: Mapping[str, Any], *, manager: str = "test") -> dict[str, Any]:
        metadata = obj["metadata"]
        path = path_of(
            obj["apiVersion"],
            obj["kind"],
            name=metadata["name"],
            namespace=metadata.get("namespace", ""),
        )
        query = {"fieldManager": manager, "force": "true"}
        body = await self.kube.request(
            "PATCH", path, query=query, body=obj, content_type=APPLY_PATCH
        )
        return msgspec.json.decode(body)

    async def add_rollout(self, name: str = POOL, **status: Any) -> None:
        """Create a Rollout with this status."""
        api, kind = "sluice.dev/v1alpha1", "Rollout"
        metadata = {"name": name, "labels": {"owned": "by-the-scheduler"}}
        await self.apply({"apiVersion": api, "kind": kind, "metadata": metadata})
        path = f"{path_of(api, kind, name=name)}/status"
        await self.kube.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)

    async def add_policy(self, version: str, *, manager: str = "") -> None:
        """Create the ClusterPolicy of the pool, which is ready; as a person, or as who applies it.

        One that a person created by hand is nobody else's.
        """
        if manager:
            await self.apply_policy(version, manager=manager)
        else:
            path, _, _ = _POLICY.rpartition("/")
            body = _policy(version)
            await self.kube.request("POST", path, query={"fieldManager": "kubectl"}, body=body)
        body = {"status": {"state": "ready"}}
        path = f"{_POLICY}/status"
        await self.kube.request("PATCH", path, body=body, content_type=MERGE_PATCH)

    async def apply_policy(self, version: str, *, manager: str, force: bool = False) -> None:
        """Apply the ClusterPolicy with a version, as a program that manages it."""
        query = {"fieldManager": manager} | ({"force": "true"} if force else {})
        body = _policy(version)
        if manager == "helm":
            release = {"release-name": "sluice", "release-namespace": "gpu-operator"}
            annotations = {f"meta.helm.sh/{key}": each for key, each in release.items()}
            body["metadata"]["annotations"] = annotations
        await self.kube.request("PATCH", _POLICY, query=query, body=body, content_type=APPLY_PATCH)

    def policy_file(self, version: str, more: str = "") -> str:
        """Write a file with the ClusterPolicy of another version, and return its path."""
        path = self.folder / "policy.yaml"
        path.write_text(POLICY_FILE % version + more)
        return str(path)

    async def policy_version(self) -> str:
        found = msgspec.json.decode(await self.kube.request("GET", _POLICY))
        return found["spec"]["driver"]["version"]

    async def rollout(self, name: str = POOL) -> dict[str, Any]:
        path = path_of("sluice.dev/v1alpha1", "Rollout", name=name)
        return msgspec.json.decode(await self.kube.request("GET", path))

    async def add_node(self, name: str, *, state: str = "", **annotations: str) -> str:
        """Create a Node and return its uid."""
        labels = {STATE_LABEL: state} if state else {}
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        return (await self.kube.create(NODES, {"metadata": metadata})).metadata.uid

    async def record(self, node: str, *, in_flight: bool = False, **fields: Any) -> str:
        """Write the record of a Node, and in flight an upgrade's lease; return the Node's uid."""
        uid = (await self.kube.get(NODES, node)).metadata.uid
        known: dict[str, Any] = {"pool": POOL, **fields}
        record = NodeRecord(node_uid=uid, epoch=1, token=1, **known)
        lease = NodeLease(node_uid=uid, owner=LeaseOwner.UPGRADE, token=1, since=1.0)
        await self.annotate(node, **written(record, lease if in_flight else None))
        return uid

    async def annotate(self, node: str, **annotations: str) -> None:
        keys = {key.replace("__", "/"): value for key, value in annotations.items()}
        await self.kube.request(
            "PATCH",
            NODES.path(name=node),
            body={"metadata": {"annotations": keys}},
            content_type=MERGE_PATCH,
        )

    async def label(self, node: str, key: str, value: str) -> None:
        await self.kube.request(
            "PATCH",
            NODES.path(name=node),
            body={"metadata": {"labels": {key: value}}},
            content_type=MERGE_PATCH,
        )

    async def labels(self, node: str) -> dict[str, str]:
        return dict((await self.kube.get(NODES, node)).metadata.labels)

    async def annotations(self, node: str) -> dict[str, str]:
        return dict((await self.kube.get(NODES, node)).metadata.annotations)

    async def run(self, *arguments: str, stdin: str = "", **environ: str) -> Ended:
        """Run the command in a thread, on a loop of its own, as a process would."""
        environ = {**self.environ, **environ}
        return await asyncio.to_thread(run_command, *arguments, stdin=stdin, **environ)


def run_command(*arguments: str, stdin: str = "", **environ: str) -> Ended:
    """Run the command in this process with these variables in its environment."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environ),
        _without_terminal(stdin),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(arguments)
    return Ended(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _without_terminal(stdin: str) -> Generator[None]:
    with mock.patch("sys.stdin", io.StringIO(stdin)):
        yield


W = TypeVar("W", bound=World)


@asynccontextmanager
async def make_world(
    folder: Path, *, nats: bool = False, world_of: Callable[[AsyncExitStack, Path], W] = World
) -> AsyncGenerator[W]:
    """Start the API server with all definitions, and NATS if it is wanted."""
    async with AsyncExitStack() as stack:
        world = world_of(stack, folder)
        stack.push_async_callback(world.server.stop)
        await world.install()
        await world.serve()
        if nats:
            await world.start_nats()
        yield world


def _policy(version: str) -> dict[str, Any]:
    required = ("operator", "daemonsets", "toolkit", "devicePlugin", "dcgmExporter", "dcgm")
    spec: dict[str, Any] = {each: {} for each in (*required, "nodeStatusExporter", "gfd")}
    spec["driver"] = {"repository": "r.example", "image": "driver", "version": version}
    head = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy"}
    return {**head, "metadata": {"name": "cluster-policy"}, "spec": spec}


def rollout_status(**changes: Any) -> dict[str, Any]:
    """Return the status of a rollout in the middle of its nodes."""
    counts = {"total": 3, "done": 1, "inFlight": 1, "failed": 0, "unavailable": 1, "limit": 1}
    return {
        "version": NEW_VERSION,
        "target": NEW,
        "phase": "Proving",
        "counts": counts,
        **changes,
    }


def halted(*failed: str, threshold: int = 1, accepted: int = 0) -> dict[str, Any]:
    """Return the status of a rollout whose target has failed on these nodes."""
    record = {"threshold": threshold, "accepted": accepted, "failed": list(failed)}
    return rollout_status(phase="Halted", because="validation failed", targets={NEW: record})
