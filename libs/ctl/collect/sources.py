"""Where an answer comes from, or why a part of it is missing."""

import time
from typing import TypeVar

from libs.contracts.message import Message
from libs.contracts.queries import QueryVerb, StatusAnswer
from libs.ctl.cluster import Cluster
from libs.ctl.failures import Failure
from libs.ctl.options import Access
from libs.fleet.status import Source, scheduler_source

_A = TypeVar("_A", bound=Message)


async def ask(access: Access, query: Message, verb: QueryVerb, answer: type[_A]) -> _A | Failure:
    """Return the scheduler's answer, or why there is none."""
    from libs.ctl.bus import open_scheduler

    try:
        async with open_scheduler(access) as scheduler:
            return await scheduler.ask(query, verb, answer)
    except Failure as failure:
        return failure


def kubernetes(cluster: Cluster, gives: str) -> Source:
    return Source(name=f"Kubernetes ({cluster.address})", gives=gives, age=0.0)


def scheduler(answer: Message | Failure | None, gives: str = "waits") -> Source:
    """Return the scheduler as a source; without an answer, as one that has nothing to say."""
    if isinstance(answer, Failure):
        problem = str(answer).removeprefix("the scheduler: ")
        return Source(name="the scheduler", gives=gives, problem=problem)
    if isinstance(answer, StatusAnswer):
        source = scheduler_source(answer, now=time.time())
        return Source(name=source.name, gives=gives, age=source.age, behind=source.behind)
    return Source(name="the scheduler", gives=gives, age=0.0)


def missing(address: str, gives: str, failure: Failure) -> Source:
    """Return Kubernetes as the source of what it did not give."""
    return Source(name=f"Kubernetes ({address})", gives=gives, problem=str(failure))
