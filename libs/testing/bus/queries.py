"""Send queries to a service as its clients do."""

from libs.bus.port import Bus, NoResponders
from libs.contracts import subjects
from libs.contracts.message import MalformedMessage, Message, decode, encode
from libs.contracts.queries import QUERIES, QueryError
from libs.runtime.clock import Clock

RETRY_SECONDS = 0.25
"""Delay before asking again when no instance of the service runs."""

_VERBS = {query: (verb, answer) for verb, (query, answer) in QUERIES.items()}


async def send_query(
    query: Message, *, bus: Bus, clock: Clock, cluster: str, service: str, timeout: float
) -> Message:
    """Send a query and return its answer or a `QueryError`.

    Retry until `timeout` while no instance runs. Raise `NoResponders`, `BusUnavailable`, or
    `MalformedMessage` for an answer of another release.
    """
    verb, answer_type = _VERBS[type(query)]
    subject = str(subjects.Query(cluster=cluster, service=service, verb=verb))
    deadline = clock.monotonic() + timeout
    while True:
        try:
            data = await bus.request(subject, encode(query), timeout=deadline - clock.monotonic())
        except NoResponders:
            if clock.monotonic() + RETRY_SECONDS >= deadline:
                raise
            await clock.sleep(RETRY_SECONDS)
        else:
            return _decode_answer(answer_type, data)


def _decode_answer(answer_type: type[Message], data: bytes) -> Message:
    try:
        return decode(answer_type, data)
    except MalformedMessage as error:
        try:
            return decode(QueryError, data)
        except MalformedMessage:
            raise error from None
