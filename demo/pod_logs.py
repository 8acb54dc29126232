"""The simulated API server with what containers have written, as `kubectl logs` asks for it."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from libs.kube.requests import Request
from libs.testing.apiserver.kinds.status_errors import bad_request
from libs.testing.apiserver.replies import Reply, error_reply
from libs.testing.apiserver.requests import flag
from libs.testing.apiserver.server import ApiServer
from libs.testing.apiserver.status import StatusError

Logs = Callable[[str], Sequence[str]]
"""Return the lines of a container, by its id; it may block."""

OK = 200
_NOT_STARTED: Mapping[str, Any] = {}
_PATH = re.compile(r"(/api/v1/namespaces/[^/]+/pods/[^/]+)/log")
"""The path of a pod, and what asks for its log."""
_TEXT = "text/plain; charset=utf-8"


class LogServer(ApiServer):
    """An API server that answers requests for logs too."""

    def __init__(self, *, logs: Logs, **options: Any) -> None:
        super().__init__(**options)
        self._logs = logs

    async def handle(self, request: Request, *, user: str) -> Reply:
        found = _PATH.fullmatch(request.path) if request.method == "GET" else None
        if found is None:
            return await super().handle(request, user=user)
        reply = await super().handle(Request(method="GET", path=found[1]), user=user)
        if reply.status != OK or reply.body is None:
            return reply
        try:
            return await log_reply(msgspec.json.decode(reply.body), request.query, self._logs)
        except StatusError as error:
            return error_reply(error)


async def log_reply(pod: Mapping[str, Any], query: Mapping[str, str], logs: Logs) -> Reply:
    """Reply with the lines so far; a request to follow ends there too."""
    lines = await asyncio.to_thread(logs, _container_id(pod, query))
    if (tail := query.get("tailLines", "")).isdecimal():
        lines = lines[max(0, len(lines) - int(tail)) :]
    text = "".join(f"{line}\n" for line in lines)
    return Reply(OK, text.encode(), content_type=_TEXT)


def _container_id(pod: Mapping[str, Any], query: Mapping[str, str]) -> str:
    """Return the id of the container that is asked for; refuse in a real server's words."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    containers = [each["name"] for each in spec["containers"]]
    inits = [each["name"] for each in spec.get("initContainers", ())]
    asked = query.get("container") or (containers[0] if len(containers) == 1 else "")
    if not asked:
        message = f"a container name must be specified for pod {name}, choose one of:"
        raise bad_request(f"{message} [{' '.join(containers)}]")
    if asked not in (*containers, *inits):
        raise bad_request(f"container {asked} is not valid for pod {name}")
    status = pod.get("status", {})
    statuses = (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ()))
    by_name: dict[str, Mapping[str, Any]] = {each["name"]: each for each in statuses}
    of_container = by_name.get(asked, _NOT_STARTED)
    if flag(query, "previous"):
        ended: Mapping[str, Any] = of_container.get("lastState", {}).get("terminated", {})
        if not ended:
            message = f'previous terminated container "{asked}" in pod "{name}" not found'
            raise bad_request(message)
        return ended["containerID"]
    if not of_container.get("containerID"):
        raise bad_request(f'container "{asked}" in pod "{name}" is waiting to start')
    return of_container["containerID"]
