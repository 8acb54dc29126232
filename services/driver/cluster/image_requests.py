"""Which nodes are to get which driver's images: what the scheduler's preflight checks ask for."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

from libs.bus.port import Bus, LastPerSubject, StoredMessage
from libs.contracts import subjects
from libs.contracts.commands import Check, PreflightCheck
from libs.contracts.identities import Writer
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.subjects import COMMANDS, NotASubject
from services.driver.cluster.image_pods import ImageRequest


class ImageRequests:
    """The last request of each node; kept during outages of the bus."""

    def __init__(self) -> None:
        self._requests: dict[str, ImageRequest] = {}
        self._repeated = set[str]()
        self.on_change: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def follow(self, bus: Bus) -> AsyncGenerator[None]:
        """Follow the checks until the end of the block, through outages of the bus."""
        pattern = subjects.cluster_pattern(subjects.Check, bus.identity.cluster)
        following = await bus.follow(COMMANDS, pattern, self, start=LastPerSubject())
        try:
            yield
        finally:
            await following.close()

    def by_node(self) -> Mapping[str, ImageRequest]:
        """Return the requests by the name of their node."""
        return self._requests

    # Called by the bus (`Follower`).

    def began(self, _recreated: bool, /) -> None:
        """Prepare for every check to be repeated."""
        self._repeated.clear()

    def received(self, message: StoredMessage) -> None:
        """Keep the request of a check; any other check of the scheduler ends it."""
        try:
            subject = subjects.parse(message.subject)
            if not isinstance(subject, subjects.Check) or subject.asker != Writer.SCHEDULER:
                return
            if subject.component != Writer.DRIVER:
                return
            check = decode(Check, message.data)
            body = check.open()
        except (MalformedMessage, NotASubject):
            return
        self._repeated.add(subject.node)
        request = None
        if isinstance(body, PreflightCheck) and body.prefetch and body.label:
            request = ImageRequest(check.node_uid, body.label)
        self._set(subject.node, request)

    def caught_up(self) -> None:
        """Drop the requests that the stream did not repeat."""
        for node in self._requests.keys() - self._repeated:
            self._set(node, None)

    def lost(self) -> None:
        """Keep what was requested."""

    def _set(self, node: str, request: ImageRequest | None) -> None:
        if self._requests.get(node) == request:
            return
        if request is None:
            self._requests.pop(node, None)
        else:
            self._requests[node] = request
        self.on_change()
