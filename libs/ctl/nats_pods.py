"""NATS's pods of an installation, reached through the API server with the user's rights."""

import asyncio
import random
import socket

from libs.contracts.nats_names import PODS as NAMES
from libs.contracts.nats_names import PORT
from libs.ctl.failures import ExitCode, NoWayToNats
from libs.ctl.text import some
from libs.kube import views
from libs.kube.client import Kube
from libs.kube.errors import KubeError, NotFound, Unavailable
from libs.kube.portforward import PortForwards
from libs.kube.resources import PODS


class NatsPods:
    """Dials the port of a pod that is Ready, each time that NATS's client connects."""

    def __init__(self, kube: Kube, forwards: PortForwards, *, namespace: str) -> None:
        self._kube = kube
        self._forwards = forwards
        self._namespace = namespace
        self._first: socket.socket | None = None
        self.name = ""
        """The pod that was dialled last."""

    @property
    def problem(self) -> str:
        """What went wrong at the pod that was dialled last; empty if nothing did."""
        return self._forwards.problem

    async def open(self) -> None:
        """Dial ahead, so that what is in the way is told as it is; raise `KubeError` or fail."""
        self._first = await self._dial()

    def close(self) -> None:
        """Close what was dialled ahead and never used."""
        if self._first is not None:
            self._first.close()

    async def dial(self) -> socket.socket:
        """Return a connected socket to NATS; raise OSError with the reason."""
        first, self._first = self._first, None
        if first is not None:
            return first
        try:
            return await self._dial()
        except (KubeError, NoWayToNats) as error:
            raise OSError(str(error)) from error

    async def _dial(self) -> socket.socket:
        """Dial the pods that are Ready until one answers, the one that was dialled last at last."""
        ready = await self._ready()
        random.shuffle(ready)
        ready.sort(key=lambda name: name == self.name)
        *others, last = ready
        for name in others:
            try:
                return await self._dial_pod(name)
            except (Unavailable, NotFound):  # its node is away, or it was deleted just now
                continue
        return await self._dial_pod(last)

    async def _dial_pod(self, name: str) -> socket.socket:
        dialled = await self._forwards.open(name, PORT, namespace=self._namespace)
        self.name = name
        return dialled

    async def _ready(self) -> list[str]:
        """Return the names of the pods that are Ready; fail if there is none."""
        found = await asyncio.gather(*map(self._pod, NAMES))
        pods = {name: pod for name, pod in zip(NAMES, found, strict=True) if pod is not None}
        if ready := [name for name, pod in pods.items() if _is_ready(pod)]:
            return ready
        if not pods:
            raise NoWayToNats(
                ExitCode.NOT_FOUND,
                f"there is no pod {NAMES[0]} in namespace {self._namespace}",
                "name an existing NATS with --nats, and the file of its CA with --ca-file",
            )
        states = some([f"{name} ({_state(pod)})" for name, pod in pods.items()])
        raise NoWayToNats(
            ExitCode.NOT_REACHABLE,
            f"no pod of NATS in namespace {self._namespace} is Ready: {states}",
            f"see `kubectl -n {self._namespace} describe pod {next(iter(pods))}`",
        )

    async def _pod(self, name: str) -> views.Pod | None:
        try:
            return await self._kube.get(PODS, name, namespace=self._namespace)
        except NotFound:
            return None


def _is_ready(pod: views.Pod) -> bool:
    conditions = {each.type: each.status for each in pod.status.conditions}
    return conditions.get("Ready") == "True" and not pod.metadata.deletion_timestamp


def _state(pod: views.Pod) -> str:
    return "is being deleted" if pod.metadata.deletion_timestamp else pod.status.phase or "unknown"
