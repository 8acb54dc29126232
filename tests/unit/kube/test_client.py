"""The client: its requests, what responses mean, and deadlines."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.json import decode, encode

from libs.kube.client import (
    BlockedByBudget,
    Evicted,
    EvictionResult,
    Kube,
    PodGone,
    Preconditions,
)
from libs.kube.errors import (
    AlreadyExists,
    Conflict,
    FieldConflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    MalformedResponse,
    NotFound,
    StatusCause,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnknownKind,
)
from libs.kube.reads import continue_token_of
from libs.kube.requests import Request
from libs.kube.resources import CONFIG_MAPS, LEASES, NODES, PODS
from libs.testing.apiserver.faults import Hang
from libs.testing.simulation import Sim, run
from tests.unit.kube.raw_http import RawResponse, ok, refusal
from tests.unit.kube.world import CLIENT, ROLLOUTS, World, error_of, in_virtual_time

GUARD = Preconditions(uid="u1", resource_version="7")
WANTED: dict[str, Any] = {"metadata": {"name": "a", "labels": {"b": "c"}}}
SUCCESS = RawResponse(201, encode({"kind": "Status", "status": "Success"}))
NO_SUCH_PATH = RawResponse(404, b"404 page not found\n")
"""The response of a proxy, or of a server that does not serve the kind."""


def stored(name: str = "a", *, uid: str = "u1", revision: int = 7) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(revision)}}


def lines(world: World) -> list[str]:
    return [f"{request.method} {request.path}" for request in world.wire.requests]


def body(world: World, at: int = -1) -> Any:
    return decode(world.wire.requests[at].body)


@in_virtual_time()
async def test_requests_of_reads_and_writes(world: World) -> None:
    kube = world.kube
    world.wire.reply(*[ok(stored())] * 5, SUCCESS)
    await kube.get(NODES, "a")
    await kube.create(CONFIG_MAPS, WANTED, namespace="x")
    await kube.replace(LEASES, stored(), namespace="x")
    await kube.replace(PODS, stored(), namespace="x", subresource="status")
    await kube.merge(NODES, "a", {"spec": {"taints": []}}, resource_version="7", within=3.0)
    await kube.delete(PODS, "a", namespace="x", uid="u1", grace=0)
    assert lines(world) == [
        "GET /api/v1/nodes/a",
        "POST /api/v1/namespaces/x/configmaps",
        "PUT /apis/coordination.k8s.io/v1/namespaces/x/leases/a",
        "PUT /api/v1/namespaces/x/pods/a/status",
        "PATCH /api/v1/nodes/a",
        "DELETE /api/v1/namespaces/x/pods/a",
    ]
    write = {"timeout": "10.000s", "fieldManager": CLIENT}
    queries = [request.query for request in world.wire.requests]
    patch = {**write, "timeout": "3.000s"}
    assert queries == [{}, write, write, write, patch, {"timeout": "10.000s"}]
    assert body(world, 4) == {"spec": {"taints": []}, "metadata": {"resourceVersion": "7"}}
    assert world.wire.requests[4].headers["content-type"] == "application/merge-patch+json"
    assert body(world)["preconditions"] == {"uid": "u1"}
    assert body(world)["gracePeriodSeconds"] == 0


@in_virtual_time()
async def test_an_apply_contains_kind_and_preconditions(world: World) -> None:
    world.wire.reply(ok(stored()), ok(stored()))
    await world.kube.apply(NODES, WANTED, force=True, preconditions=GUARD)
    assert body(world) == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "labels": {"b": "c"}, "uid": "u1", "resourceVersion": "7"},
    }
    await world.kube.apply(ROLLOUTS, WANTED, force=False, subresource="status")
    assert lines(world)[1] == "PATCH /apis/sluice.dev/v1alpha1/rollouts/a/status"
    assert body(world)["apiVersion"] == "sluice.dev/v1alpha1"
    first, second = world.wire.requests
    assert first.headers["content-type"] == "application/apply-patch+yaml"
    assert (first.query["force"], "force" in second.query) == ("true", False)


@in_virtual_time()
async def test_writes_without_their_preconditions_are_not_sent(world: World) -> None:
    kube = world.kube
    with pytest.raises(ValueError, match="a patch of a Node needs a resourceVersion"):
        await kube.merge(NODES, "a", {"spec": {}}, resource_version="")
    with pytest.raises(ValueError, match="a PUT of a Lease needs a resourceVersion"):
        await kube.replace(LEASES, WANTED, namespace="x")
    with pytest.raises(ValueError, match="an apply to a Node needs preconditions"):
        await kube.apply(NODES, WANTED, force=True)
    for uid, revision in (("", "7"), ("u1", ""), ("", "")):
        with pytest.raises(ValueError, match="need both uid and resourceVersion"):
            Preconditions(uid=uid, resource_version=revision)
    assert not world.wire.requests


# Lists.


def page(revision: int, name: str, *, token: str = "") -> RawResponse:
    metadata = {"resourceVersion": str(revision), "continue": token}
    return ok({"metadata": metadata, "items": [stored(name)]})


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        (
            [page(5, "a", token="1"), page(5, "b", token="2"), page(5, "a", token="1")],
            "repeats a continue token",
        ),
        ([page(5, "a", token="1"), page(6, "b")], "different revisions: 5, 6"),
    ],
)
@in_virtual_time()
async def test_pages_that_do_not_belong_together_are_an_error(
    world: World, pages: list[RawResponse], why: str
) -> None:
    world.wire.reply(*pages)
    with pytest.raises(MalformedResponse, match=why):
        await world.kube.list_all(NODES)
    assert len(world.wire.requests) == len(pages)


@pytest.mark.parametrize(
    "response",
    [
        b'{"kind":"List","metadata":{"resourceVersion":"7","continue":"x"},"items":[{"a":1}]}',
        b'{"items":[{"metadata":{"continue":"no"}}],"kind":"List","metadata":{"continue":"x"}}',
    ],
    ids=["built-in kind", "custom kind"],
)
def test_the_continue_token_is_found_anywhere(response: bytes) -> None:
    assert continue_token_of(response, path="/apis/x") == "x"


class TrackedBody(bytes):
    """A body that is counted in `alive` until it is freed."""

    number: int
    alive: set[int]

    def __del__(self) -> None:
        self.alive.discard(self.number)


class TrackedPage(RawResponse, kw_only=True):
    number: int
    alive: set[int]
    last: bool

    async def body(self) -> bytes:
        await asyncio.sleep(1.0)
        assert not self.alive
        metadata = {"resourceVersion": "7", "continue": "" if self.last else f"{self.number}"}
        tracked = TrackedBody(encode({"metadata": metadata, "items": [stored(f"n{self.number}")]}))
        tracked.number, tracked.alive = self.number, self.alive
        self.alive.add(self.number)
        return tracked


class TrackedTransport:
    """A transport that keeps no reference to its responses."""

    def __init__(self) -> None:
        self._alive: set[int] = set()
        self._count = 0

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[RawResponse]:
        self._count += 1
        yield TrackedPage(number=self._count, alive=self._alive, last=self._count == 3)


def test_the_bytes_of_a_page_are_freed_before_the_next_arrives() -> None:
    async def main(sim: Sim) -> None:
        kube = Kube(TrackedTransport(), manager="test", clock=sim.clock)
        listed = await kube.list_all(NODES, limit=1)
        assert [node.metadata.name for node in listed.items] == ["n1", "n2", "n3"]

    run(main, seed=1)


# Deadlines and streams.


@in_virtual_time()
async def test_a_late_response_is_a_timeout(world: World) -> None:
    world.wire.reply(RawResponse(late=60.0))
    with pytest.raises(TimedOut) as late:
        await world.kube.request("GET", "/version", within=2.5)
    assert str(late.value) == (
        "GET /version: no complete response from https://api:6443 within 2.5 s; "
        "check the server and the network"
    )
    assert world.wire.open_now == 0


@in_virtual_time()
async def test_the_deadline_of_a_stream_covers_only_its_head(world: World) -> None:
    world.inject(Hang(), "get")
    with pytest.raises(TimedOut):
        async with world.kube.stream(NODES.path(name="a"), query={}, within=2.0):
            pytest.fail("there was no head")
    world.wire.reply(RawResponse(200, b"late", late=500.0))
    async with world.kube.stream("/version", query={}, within=2.0) as response:
        assert await response.body() == b"late"
    assert world.wire.open_now == 0


@pytest.mark.parametrize(
    ("response", "error_type", "why"),
    [
        (refusal(410, "Expired"), Gone, "no"),
        (RawResponse(410, late=60.0), TimedOut, "no complete response"),
        (RawResponse(307), Unavailable, "answered 307, which no API server does"),
    ],
)
@in_virtual_time()
async def test_a_refused_stream_names_the_reason_within_the_deadline(
    world: World, response: RawResponse, error_type: type[KubeError], why: str
) -> None:
    world.wire.reply(response)
    with pytest.raises(error_type, match=why):
        async with world.kube.stream("/a", query={}, within=2.0):
            pytest.fail("it was refused")


@in_virtual_time()
async def test_a_stream_is_closed_however_it_ends(world: World) -> None:
    world.wire.reply(ok({}), RawResponse(late=60.0))
    with pytest.raises(KeyError):
        async with world.kube.stream("/a", query={}):
            raise KeyError("a")
    assert world.wire.open_now == 0

    async def read() -> None:
        async with world.kube.stream("/a", query={}) as response:
            await response.body()

    reader = asyncio.create_task(read())
    await asyncio.sleep(1.0)
    assert world.wire.open_now == 1
    reader.cancel()
    await asyncio.wait({reader})
    assert reader.cancelled()
    assert world.wire.open_now == 0


# Errors.


@pytest.mark.parametrize(
    ("response", "error_type"),
    [
        (refusal(400, "BadRequest"), Invalid),
        (refusal(401, "Unauthorized"), Unauthorized),
        (refusal(403, "Forbidden"), Forbidden),
        (refusal(404, "NotFound", name="a"), NotFound),
        (NO_SUCH_PATH, UnknownKind),
        (refusal(409, "Conflict"), Conflict),
        (refusal(409, "AlreadyExists"), AlreadyExists),
        (refusal(410, "Expired"), Gone),
        (refusal(422, "Invalid"), Invalid),
        (refusal(429, "TooManyRequests"), TooManyRequests),
        (refusal(500, "InternalError"), Unavailable),
        (refusal(503, "ServiceUnavailable"), Unavailable),
        (refusal(504, "Timeout"), TimedOut),
        (RawResponse(302), Unavailable),
        (RawResponse(502, b"<html>\xff</html>"), Unavailable),
        (RawResponse(500, b'{"details":{"causes":null},"message":"no"}'), Unavailable),
        (RawResponse(200, b"<html>"), MalformedResponse),
        (RawResponse(200, b'{"metadata":{"name":"\xff"}}'), MalformedResponse),
        (RawResponse(200, b'{"metadata":{"name":7}}'), MalformedResponse),
    ],
)
@in_virtual_time()
async def test_each_failure_has_a_type(
    world: World, response: RawResponse, error_type: type[KubeError]
) -> None:
    world.wire.reply(response)
    error = await error_of(world.kube.get(NODES, "a"))
    assert type(error) is error_type
    assert error.code in (response.status, 0)
    assert str(error).startswith("GET /api/v1/nodes/a: ")


@pytest.mark.parametrize(
    ("response", "attribute", "value"),
    [
        (
            refusal(
                409,
                "Conflict",
                causes=[
                    {
                        "reason": "FieldManagerConflict",
                        "message": 'conflict with "kubectl-label" using v1',
                        "field": ".metadata.labels.x",
                    }
                ],
            ),
            "field_conflicts",
            (FieldConflict("kubectl-label", ".metadata.labels.x"),),
        ),
        (
            refusal(
                422,
                "Invalid",
                causes=[{"reason": "FieldValueInvalid", "message": "wrong", "field": "spec.x"}],
            ),
            "causes",
            (StatusCause("FieldValueInvalid", "wrong", "spec.x"),),
        ),
        (refusal(429, "TooManyRequests", retryAfterSeconds=10), "retry_after", 10.0),
        (RawResponse(429, b"slowly", headers={"retry-after": "7"}), "retry_after", 7.0),
    ],
)
@in_virtual_time()
async def test_an_error_has_what_the_response_says_of_it(
    world: World, response: RawResponse, attribute: str, value: object
) -> None:
    world.wire.reply(response)
    assert getattr(await error_of(world.kube.get(NODES, "a")), attribute) == value


@pytest.mark.parametrize("response", [RawResponse(302), RawResponse(200, b"<html>log in</html>")])
@in_virtual_time()
async def test_responses_that_no_api_server_gives_are_errors(
    world: World, response: RawResponse
) -> None:
    world.wire.reply(response, ok(stored("p")), response)
    for request in (world.kube.delete(PODS, "p", namespace="x", uid="u1"), evict(world)):
        assert isinstance(await error_of(request), Unavailable | MalformedResponse)


@in_virtual_time()
async def test_an_unserved_kind_is_not_a_missing_object(world: World) -> None:
    kube = world.kube
    wanted = stored()
    world.wire.reply(*[NO_SUCH_PATH] * 7)
    for request in (
        kube.list_page(ROLLOUTS),
        kube.get(ROLLOUTS, "a"),
        kube.create(ROLLOUTS, wanted),
        kube.replace(ROLLOUTS, wanted, subresource="status"),
        kube.apply(ROLLOUTS, wanted, force=True),
        kube.delete(ROLLOUTS, "a", uid="u1"),
    ):
        with pytest.raises(UnknownKind, match="install the CustomResourceDefinition rollouts"):
            await request
    unknown = await error_of(kube.list_page(LEASES))
    assert unknown.message == "the server does not serve leases of coordination.k8s.io/v1"
    missing_namespace = kube.create(CONFIG_MAPS, WANTED, namespace="none")
    assert type(await error_of(missing_namespace)) is NotFound


# Applies with preconditions.

STALE = refusal(409, "Conflict")
"""The response when the object has another uid, is gone, or has changed."""
IMMUTABLE = refusal(422, "Invalid", causes=[{"field": "metadata.uid"}])
MISSING = refusal(404, "NotFound", name="a")
CLAIMED = refusal(
    409,
    "Conflict",
    causes=[{"reason": "FieldManagerConflict", "message": 'conflict with "x"', "field": ".a"}],
)


@pytest.mark.parametrize(
    ("responses", "error_type"),
    [
        ([STALE, MISSING], NotFound),
        ([STALE, ok(stored(uid="u2"))], NotFound),
        ([IMMUTABLE, MISSING], NotFound),
        ([IMMUTABLE, ok(stored(uid="u2"))], NotFound),
        ([STALE, ok(stored(revision=8))], Conflict),
        ([STALE, refusal(500, "InternalError")], Conflict),  # unknown whether it exists
        ([STALE, NO_SUCH_PATH], Conflict),
        ([CLAIMED], Conflict),
    ],
)
@in_virtual_time()
async def test_a_refused_apply_tells_a_missing_object_from_a_changed_one(
    world: World, responses: list[RawResponse], error_type: type[KubeError]
) -> None:
    world.wire.reply(*responses)
    error = await error_of(world.kube.apply(NODES, WANTED, force=True, preconditions=GUARD))
    assert type(error) is error_type
    expected = ["PATCH /api/v1/nodes/a", "GET /api/v1/nodes/a"]
    assert lines(world) == expected[: len(responses)]


@in_virtual_time()
async def test_a_conflict_without_preconditions_is_raised_at_once(world: World) -> None:
    world.wire.reply(STALE)
    apply = world.kube.apply(CONFIG_MAPS, WANTED, force=False, namespace="x")
    assert isinstance(await error_of(apply), Conflict)
    assert len(world.wire.requests) == 1


# Evictions.

POD = ok(stored("p"))
REPLACED = ok(stored("p", uid="u2"))
POD_MISSING = refusal(404, "NotFound", name="p")
BUDGET = [{"reason": "DisruptionBudget"}]
BUSY = refusal(429, "TooManyRequests")
SEVERAL_BUDGETS = refusal(500, "", "This pod has more than one PodDisruptionBudget")


async def evict(world: World, *, within: float = 10.0) -> EvictionResult:
    return await world.kube.evict("p", namespace="x", uid="u1", grace=30, within=within)


@pytest.mark.parametrize(
    ("responses", "result"),
    [
        ([POD, SUCCESS], Evicted()),
        ([POD_MISSING], PodGone()),
        ([REPLACED], PodGone()),
        ([POD, POD_MISSING], PodGone()),
        ([POD, STALE, REPLACED], PodGone()),
        ([POD, STALE, POD_MISSING], PodGone()),
        ([POD, refusal(429, "", causes=BUDGET)], BlockedByBudget("no", None)),
        (
            [POD, refusal(429, "", causes=[{**BUDGET[0], "message": "budget b needs 1"}])],
            BlockedByBudget("budget b needs 1", None),
        ),
        (
            [POD, refusal(429, "", causes=BUDGET, retryAfterSeconds=10)],
            BlockedByBudget("no", 10.0),
        ),
    ],
)
@in_virtual_time()
async def test_an_eviction_has_the_result_that_the_responses_show(
    world: World, responses: list[RawResponse], result: EvictionResult
) -> None:
    world.wire.reply(*responses)
    assert await evict(world) == result
    assert len(world.wire.requests) == len(responses)


@pytest.mark.parametrize(
    ("responses", "error_type", "why"),
    [
        ([NO_SUCH_PATH], UnknownKind, "does not serve pods"),
        ([POD, NO_SUCH_PATH], UnknownKind, "does not serve pods"),
        ([BUSY], TooManyRequests, "no"),
        ([POD, BUSY], TooManyRequests, "no"),
        ([POD, SEVERAL_BUDGETS], Unavailable, "more than one PodDisruptionBudget"),
        ([POD, STALE, POD], Conflict, "no"),
    ],
)
@in_virtual_time()
async def test_other_refusals_of_an_eviction_are_errors(
    world: World, responses: list[RawResponse], error_type: type[KubeError], why: str
) -> None:
    world.wire.reply(*responses)
    with pytest.raises(error_type, match=why):
        await evict(world)


@in_virtual_time()
async def test_an_eviction_names_the_uid(world: World) -> None:
    world.wire.reply(POD, SUCCESS)
    await evict(world)
    assert lines(world)[1] == "POST /api/v1/namespaces/x/pods/p/eviction"
    assert body(world) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "x"},
        "deleteOptions": {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u1"},
            "gracePeriodSeconds": 30,
        },
    }


@in_virtual_time()
async def test_all_requests_of_an_eviction_share_one_deadline(world: World) -> None:
    world.wire.reply(RawResponse(200, encode(stored("p")), late=2.0), RawResponse(late=60.0))
    with pytest.raises(TimedOut):
        await evict(world, within=3.0)
    assert world.wire.requests[1].query == {"timeout": "1.000s"}
