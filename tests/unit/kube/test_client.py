"""The client's requests and what their answers mean, over a transport that answers as told."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from libs.kube.client import BlockedByBudget, Evicted, Kube, PodGone, Preconditions
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
from libs.kube.requests import Request
from libs.kube.resources import CONFIG_MAPS, LEASES, NODES, PODS, Resource
from libs.kube.views import Object
from libs.testing.simulation import Sim, run
from tests.unit.kube.fake_api_server import CannedResponse, JsonObject, encode, status_body

ROLLOUTS = Resource(
    group="sluice.dev",
    version="v1alpha1",
    plural="rollouts",
    kind="Rollout",
    namespaced=False,
    view=Object,
)

GUARD = Preconditions(uid="u1", resource_version="7")

DONE = CannedResponse(201, encode({"kind": "Status", "status": "Success"}))
NO_SUCH_PAGE = CannedResponse(404, b"404 page not found\n")
"""So answers who knows nothing of the kind: a proxy, or a server that does not serve it."""


def config_map(name: str, *, uid: str = "u1", revision: int = 7) -> JsonObject:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(revision)}}


def well(body: object) -> CannedResponse:
    return CannedResponse(200, encode(body))


class ScriptedTransport:
    """Answers one after another, and keeps what was asked."""

    def __init__(self, sim: Sim, *answers: CannedResponse | float) -> None:
        self._sim = sim
        self._answers = list(answers)
        self.asked: list[Request] = []
        self.open_now = 0
        self.left: list[str] = []

    def __str__(self) -> str:
        return "https://there:6443"

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[CannedResponse]:
        self.asked.append(request)
        answer = self._answers.pop(0)
        self.open_now += 1
        try:
            if isinstance(answer, CannedResponse):
                yield answer
            else:
                await self._sim.clock.sleep(answer)
                yield well({})
        except BaseException as error:
            self.left.append(type(error).__name__)
            raise
        finally:
            self.open_now -= 1

    def sent(self, at: int = -1) -> Any:
        return msgspec.json.decode(self.asked[at].body)

    def words(self) -> list[str]:
        return [f"{each.method} {each.path}" for each in self.asked]


Story = Callable[[Kube, ScriptedTransport], Awaitable[None]]


def run_story(story: Story, *answers: CannedResponse | float) -> None:
    async def main(sim: Sim) -> None:
        script = ScriptedTransport(sim, *answers)
        await story(Kube(script, manager="sluice-test", clock=sim.clock), script)
        assert script.open_now == 0

    run(main, seed=1)


# Requests.


def test_requests_of_reads_and_writes() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        made = {"metadata": {"name": "a"}}
        await kube.get(NODES, "a")
        await kube.create(CONFIG_MAPS, made, namespace="x")
        await kube.replace(LEASES, config_map("a"), namespace="x")
        await kube.replace(PODS, config_map("a"), namespace="x", subresource="status")
        await kube.merge(NODES, "a", {"spec": {"taints": []}}, resource_version="7", within=3.0)
        assert script.sent() == {"spec": {"taints": []}, "metadata": {"resourceVersion": "7"}}
        await kube.delete(PODS, "a", namespace="x", uid="u1", grace=0)
        assert script.sent()["preconditions"] == {"uid": "u1"}
        assert script.sent()["gracePeriodSeconds"] == 0
        assert script.words() == [
            "GET /api/v1/nodes/a",
            "POST /api/v1/namespaces/x/configmaps",
            "PUT /apis/coordination.k8s.io/v1/namespaces/x/leases/a",
            "PUT /api/v1/namespaces/x/pods/a/status",
            "PATCH /api/v1/nodes/a",
            "DELETE /api/v1/namespaces/x/pods/a",
        ]
        manager = {"fieldManager": "sluice-test"}
        assert [each.query for each in script.asked] == [
            {},
            {"timeout": "10.000s", **manager},
            {"timeout": "10.000s", **manager},
            {"timeout": "10.000s", **manager},
            {"timeout": "3.000s", **manager},
            {"timeout": "10.000s"},
        ]
        assert script.asked[4].headers["content-type"] == "application/merge-patch+json"

    run_story(story, *[well(config_map("a"))] * 5, DONE)


@pytest.mark.parametrize(
    "answer", [CannedResponse(302, b""), CannedResponse(200, b"<html>log in</html>")]
)
def test_responses_that_no_api_server_gives_are_errors(answer: CannedResponse) -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises((Unavailable, MalformedResponse)):
            await kube.delete(PODS, "p", namespace="x", uid="u1")
        with pytest.raises((Unavailable, MalformedResponse)):
            await evict(kube)

    run_story(story, answer, well(config_map("p")), answer)


def test_a_redirected_stream_is_an_error() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(Unavailable, match="answered 307, which no API server does"):
            async with kube.stream("/a", query={}):
                raise AssertionError("it was entered")

    run_story(story, CannedResponse(307, b""))


def part(revision: int, name: str, *, rest: str = "") -> CannedResponse:
    metadata = {"resourceVersion": str(revision), "continue": rest}
    return well({"metadata": metadata, "items": [config_map(name)]})


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (
            [part(5, "a", rest="1"), part(5, "b", rest="2"), part(5, "a", rest="1")],
            "repeats a continue token",
        ),
        ([part(5, "a", rest="1"), part(6, "b")], "different revisions: 5, 6"),
    ],
)
def test_pages_that_do_not_belong_together_are_an_error(
    parts: list[CannedResponse], why: str
) -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(MalformedResponse, match=why):
            await kube.list_all(NODES)
        assert len(script.asked) == len(parts)

    run_story(story, *parts)


@pytest.mark.parametrize(("uid", "revision"), [("", "7"), ("u1", ""), ("", "")])
def test_preconditions_require_uid_and_revision(uid: str, revision: str) -> None:
    with pytest.raises(ValueError, match="need both uid and resourceVersion"):
        Preconditions(uid=uid, resource_version=revision)


def test_a_merge_patch_requires_a_revision() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(ValueError, match="needs a resourceVersion"):
            await kube.merge(NODES, "a", {"spec": {}}, resource_version="")
        assert not script.asked

    run_story(story)


def test_a_put_requires_a_revision() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(ValueError, match="a PUT of a Lease needs a resourceVersion"):
            await kube.replace(LEASES, {"metadata": {"name": "a"}}, namespace="x")
        assert script.asked == []

    run_story(story)


def test_an_apply_contains_kind_and_preconditions() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        wanted = {"metadata": {"name": "a", "labels": {"b": "c"}}}
        with pytest.raises(ValueError, match="an apply to a Node needs preconditions"):
            await kube.apply(NODES, wanted, force=True)
        await kube.apply(NODES, wanted, force=True, preconditions=GUARD)
        assert script.sent() == {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "a",
                "labels": {"b": "c"},
                "uid": "u1",
                "resourceVersion": "7",
            },
        }
        assert script.asked[0].query["force"] == "true"
        assert script.asked[0].headers["content-type"] == "application/apply-patch+yaml"
        await kube.apply(ROLLOUTS, wanted, force=False, subresource="status")
        assert script.words()[1] == "PATCH /apis/sluice.dev/v1alpha1/rollouts/a/status"
        assert script.sent()["apiVersion"] == "sluice.dev/v1alpha1"
        assert "force" not in script.asked[1].query

    run_story(story, well(config_map("a")), well(config_map("a")))


# Deadlines.


def test_a_late_response_is_a_timeout() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(TimedOut) as late:
            await kube.request("GET", "/version", within=2.5)
        assert str(late.value) == (
            "GET /version: no complete response from https://there:6443 within 2.5 s; "
            "check the server and the network"
        )
        assert script.left == ["CancelledError"]

    run_story(story, 60.0)


def test_the_deadline_of_a_stream_covers_only_its_head() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(TimedOut):
            async with kube.stream("/version", query={}, within=2.0):
                pytest.fail("there was no head")
        async with kube.stream("/version", query={}, within=2.0) as answer:
            assert await answer.body() == b"late"
        assert script.left == ["CancelledError"]

    run_story(story, 60.0, CannedResponse(200, b"late", late=500.0))


def test_a_refused_stream_names_the_reason_within_the_deadline() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(Gone):
            async with kube.stream("/a", query={}):
                pytest.fail("it was refused")
        with pytest.raises(TimedOut):
            async with kube.stream("/a", query={}, within=2.0):
                pytest.fail("it was refused")
        assert script.left == ["Gone", "TimedOut"]

    run_story(
        story, CannedResponse(410, status_body(410, "Expired")), CannedResponse(410, b"", late=60.0)
    )


def test_the_transport_sees_the_error_that_ended_a_stream() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(KeyError):
            async with kube.stream("/a", query={}):
                raise KeyError("a")
        async with kube.stream("/a", query={}):
            pass

        async def stay() -> None:
            async with kube.stream("/a", query={}) as answer:
                await answer.body()

        staying = asyncio.create_task(stay())
        await asyncio.sleep(1.0)
        assert script.open_now == 1
        staying.cancel()
        await asyncio.wait({staying})
        assert staying.cancelled()
        assert script.left == ["KeyError", "CancelledError"]

    run_story(story, well({}), well({}), CannedResponse(200, b"", late=60.0))


# Refusals.


def error_response(code: int, reason: str, **details: Any) -> CannedResponse:
    return CannedResponse(code, status_body(code, reason, "no", **details))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error_response(400, "BadRequest"), Invalid),
        (error_response(401, "Unauthorized"), Unauthorized),
        (error_response(403, "Forbidden"), Forbidden),
        (error_response(404, "NotFound", name="a"), NotFound),
        (NO_SUCH_PAGE, UnknownKind),
        (error_response(409, "Conflict"), Conflict),
        (error_response(409, "AlreadyExists"), AlreadyExists),
        (error_response(410, "Expired"), Gone),
        (error_response(422, "Invalid"), Invalid),
        (error_response(429, "TooManyRequests"), TooManyRequests),
        (error_response(500, "InternalError"), Unavailable),
        (error_response(503, "ServiceUnavailable"), Unavailable),
        (error_response(504, "Timeout"), TimedOut),
        (CannedResponse(502, b"<html>\xff</html>"), Unavailable),
        (CannedResponse(500, b'{"details":{"causes":null},"message":"no"}'), Unavailable),
        (CannedResponse(200, b"<html>"), MalformedResponse),
        (CannedResponse(200, b'{"metadata":{"name":"\xff"}}'), MalformedResponse),
        (CannedResponse(200, b'{"metadata":{"name":7}}'), MalformedResponse),
    ],
)
def test_each_refusal_is_a_type(answer: CannedResponse, kind: type[KubeError]) -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(KubeError) as got:
            await kube.get(NODES, "a")
        assert type(got.value) is kind
        assert got.value.code in (answer.status, 0)
        assert str(got.value).startswith("GET /api/v1/nodes/a: ")

    run_story(story, answer)


def test_attributes_of_refusals() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(Conflict) as conflict:
            await kube.get(NODES, "a")
        assert conflict.value.claims == (FieldConflict("kubectl-label", ".metadata.labels.x"),)
        with pytest.raises(Invalid) as invalid:
            await kube.get(NODES, "a")
        assert invalid.value.causes == (StatusCause("FieldValueInvalid", "wrong", "spec.x"),)
        for seconds in (10.0, 7.0):
            with pytest.raises(TooManyRequests) as later:
                await kube.get(NODES, "a")
            assert later.value.retry_after == seconds

    claim = {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "kubectl-label" using v1',
        "field": ".metadata.labels.x",
    }
    wrong = {"reason": "FieldValueInvalid", "message": "wrong", "field": "spec.x"}
    run_story(
        story,
        error_response(409, "Conflict", causes=[claim]),
        error_response(422, "Invalid", causes=[wrong]),
        error_response(429, "TooManyRequests", retryAfterSeconds=10),
        CannedResponse(429, b"slowly", headers={"retry-after": "7"}),
    )


def test_an_unserved_kind_is_not_a_missing_object() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        said = "install the CustomResourceDefinition rollouts.sluice.dev"
        wanted: Mapping[str, Any] = {"metadata": {"name": "a", "resourceVersion": "7"}}
        for asking in (
            kube.list_page(ROLLOUTS),
            kube.get(ROLLOUTS, "a"),
            kube.create(ROLLOUTS, wanted),
            kube.replace(ROLLOUTS, wanted, subresource="status"),
            kube.apply(ROLLOUTS, wanted, force=True),
            kube.delete(ROLLOUTS, "a", uid="u1"),
        ):
            with pytest.raises(UnknownKind, match=said):
                await asking
        with pytest.raises(UnknownKind) as unknown:
            await kube.list_page(LEASES)
        assert unknown.value.message == (
            "the server does not serve leases of coordination.k8s.io/v1"
        )
        with pytest.raises(NotFound) as missing:
            await kube.create(CONFIG_MAPS, wanted, namespace="none")
        assert type(missing.value) is NotFound

    run_story(
        story,
        *[NO_SUCH_PAGE] * 7,
        error_response(404, "NotFound", name="none", kind="namespaces"),
    )


# What a guard is for.

STALE = error_response(409, "Conflict")
"""So a server answers when the object is another, is gone, or has changed."""

IMMUTABLE = error_response(422, "Invalid", causes=[{"field": "metadata.uid"}])


@pytest.mark.parametrize("answer", [STALE, IMMUTABLE])
@pytest.mark.parametrize(
    "there", [error_response(404, "NotFound", name="a"), well(config_map("a", uid="u2"))]
)
def test_an_apply_with_preconditions_to_a_missing_object_is_not_found(
    answer: CannedResponse, there: CannedResponse
) -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(NotFound) as gone:
            await kube.apply(NODES, {"metadata": {"name": "a"}}, force=True, preconditions=GUARD)
        assert gone.value.missing == "a"
        assert script.words() == ["PATCH /api/v1/nodes/a", "GET /api/v1/nodes/a"]

    run_story(story, answer, there)


def test_an_apply_with_preconditions_to_a_changed_object_is_a_conflict() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        for _ in range(2):
            with pytest.raises(Conflict):
                await kube.apply(
                    NODES, {"metadata": {"name": "a"}}, force=True, preconditions=GUARD
                )
        assert script.words() == ["PATCH /api/v1/nodes/a", "GET /api/v1/nodes/a"] * 2

    # Whether the second question is answered or not: the first answer stands.
    run_story(
        story, STALE, well(config_map("a", revision=8)), STALE, error_response(500, "InternalError")
    )


def test_a_server_without_nodes_does_not_prove_that_a_node_is_gone() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(Conflict):
            await kube.apply(NODES, {"metadata": {"name": "a"}}, force=True, preconditions=GUARD)
        assert script.words()[1:] == ["GET /api/v1/nodes/a"]

    run_story(story, STALE, NO_SUCH_PAGE)


def test_a_field_conflict_is_raised_without_another_request() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(Conflict) as conflict:
            await kube.apply(NODES, {"metadata": {"name": "a"}}, force=False, preconditions=GUARD)
        assert conflict.value.claims != ()
        with pytest.raises(Conflict):
            await kube.apply(CONFIG_MAPS, {"metadata": {"name": "a"}}, force=False, namespace="x")
        assert len(script.asked) == 2

    claim = {"reason": "FieldManagerConflict", "message": 'conflict with "x"', "field": ".a"}
    run_story(story, error_response(409, "Conflict", causes=[claim]), STALE)


# Evictions.


def blocked_response(**details: Any) -> CannedResponse:
    return error_response(
        429, "TooManyRequests", causes=[{"reason": "DisruptionBudget"}], **details
    )


async def evict(kube: Kube, *, within: float = 10.0) -> Evicted | PodGone | BlockedByBudget:
    return await kube.evict("p", namespace="x", uid="u1", grace=30, within=within)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([well(config_map("p")), DONE], Evicted()),
        ([error_response(404, "NotFound", name="p")], PodGone()),
        ([well(config_map("p", uid="u2"))], PodGone()),
        ([well(config_map("p")), error_response(404, "NotFound", name="p")], PodGone()),
        ([well(config_map("p")), STALE, well(config_map("p", uid="u2"))], PodGone()),
        ([well(config_map("p")), STALE, error_response(404, "NotFound", name="p")], PodGone()),
        ([well(config_map("p")), blocked_response()], BlockedByBudget("no", None)),
        (
            [well(config_map("p")), blocked_response(retryAfterSeconds=10)],
            BlockedByBudget("no", 10.0),
        ),
    ],
)
def test_results_of_an_eviction(answers: list[CannedResponse], said: object) -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        assert await evict(kube) == said
        assert len(script.asked) == len(answers)

    run_story(story, *answers)


def test_an_eviction_names_the_uid() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        await evict(kube)
        assert script.words()[1] == "POST /api/v1/namespaces/x/pods/p/eviction"
        assert script.sent() == {
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

    run_story(story, well(config_map("p")), DONE)


@pytest.mark.parametrize("before", [[], [well(config_map("p"))]])
@pytest.mark.parametrize(
    ("answer", "kind"),
    [(NO_SUCH_PAGE, UnknownKind), (error_response(429, "TooManyRequests"), TooManyRequests)],
)
def test_other_refusals_of_an_eviction_are_errors(
    before: list[CannedResponse], answer: CannedResponse, kind: type[KubeError]
) -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(kind):
            await evict(kube)

    run_story(story, *before, answer)


def test_an_eviction_under_several_budgets_is_a_readable_error() -> None:
    several = "This pod has more than one PodDisruptionBudget, which the eviction does not support."

    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(Unavailable, match="more than one PodDisruptionBudget"):
            await evict(kube)
        with pytest.raises(Conflict):
            await evict(kube)

    run_story(
        story,
        well(config_map("p")),
        CannedResponse(500, status_body(500, "", several)),
        well(config_map("p")),
        STALE,
        well(config_map("p")),
    )


def test_all_requests_of_an_eviction_share_one_deadline() -> None:
    async def story(kube: Kube, script: ScriptedTransport) -> None:
        with pytest.raises(TimedOut):
            await evict(kube, within=3.0)
        assert script.asked[1].query == {"timeout": "1.000s"}

    slow = CannedResponse(200, encode(config_map("p")), late=2.0)
    run_story(story, slow, 60.0)
