"""Evictions under a budget, and bindings."""

from libs.kube.client import BlockedByBudget, Evicted, PodGone
from tests.component.testing.apiserver.world import (
    BUDGETS,
    MERGE,
    PODS,
    ApiServerWorld,
    JsonObject,
    run_world,
)


async def budget(town: ApiServerWorld, name: str = "b", **status: int) -> None:
    """A budget for all pods, as its controller has seen it."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    await town.ask("POST", BUDGETS, {"metadata": {"name": name}, "spec": spec})
    if status:
        body = {"status": {"observedGeneration": 1, **status}}
        code, _ = await town.ask("PATCH", f"{BUDGETS}/{name}/status", body, content_type=MERGE)
        assert code == 200


async def evict(town: ApiServerWorld, name: str = "p1") -> tuple[int, dict[str, str], JsonObject]:
    """The whole answer."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    code, headers, answer = await town.post(f"{PODS}/{name}/eviction", body)
    return code, dict(headers), answer


def test_a_budget_that_its_controller_has_not_seen_withholds() -> None:
    async def main(town: ApiServerWorld) -> None:
        await town.pod("p1")
        await budget(town)
        code, headers, refused = await evict(town)
        assert (code, headers["retry-after"], refused["reason"]) == (429, "10", "TooManyRequests")
        assert refused["details"]["causes"] == [
            {
                "reason": "DisruptionBudget",
                "message": "The disruption budget b is still being processed by the server.",
            }
        ]

    run_world(main)


def test_a_budget_that_is_spent_withholds_and_says_by_how_much() -> None:
    async def main(town: ApiServerWorld) -> None:
        pod = await town.pod("p1")
        await budget(town, currentHealthy=1, desiredHealthy=1)
        code, headers, refused = await evict(town)
        assert code == 429
        assert "retry-after" not in headers
        words = "The disruption budget b needs 1 healthy pods and has 1 currently"
        assert refused["details"]["causes"][0]["message"] == words
        given = await town.kube.evict("p1", namespace="default", uid=pod["metadata"]["uid"])
        assert isinstance(given, BlockedByBudget)

    run_world(main)


def test_an_eviction_spends_the_budget_and_marks_the_pod() -> None:
    async def main(town: ApiServerWorld) -> None:
        pod = await town.pod("p1")
        await town.pod("p2")
        await budget(town, currentHealthy=2, desiredHealthy=1, disruptionsAllowed=1)
        at = town.server.revision
        given = await town.kube.evict("p1", namespace="default", uid=pod["metadata"]["uid"])
        assert given == Evicted()
        assert town.server.revision == at + 3  # the budget, the condition, the deletion
        _, spent = await town.ask("GET", f"{BUDGETS}/b")
        assert spent["status"]["disruptionsAllowed"] == 0
        assert spent["status"]["disruptedPods"] == {"p1": "2027-01-15T08:00:00Z"}
        _, going = await town.ask("GET", f"{PODS}/p1")
        assert going["metadata"]["deletionGracePeriodSeconds"] == 30
        kinds = [each["type"] for each in going["status"]["conditions"]]
        assert kinds == ["Ready", "DisruptionTarget"]
        assert (await evict(town, "p2"))[0] == 429
        evictions = [
            (each.code, each.name) for each in town.server.journal.revisions if each.verb == "evict"
        ]
        assert evictions == [(201, "p1"), (429, "p2")]

    run_world(main)


def test_who_harms_nobody_goes_without_the_budget() -> None:
    async def main(town: ApiServerWorld) -> None:
        await budget(town, currentHealthy=2, desiredHealthy=1)
        for name, phase in (("p1", "Pending"), ("p2", "Succeeded")):
            await town.pod(name, phase=phase)
            assert (await evict(town, name))[0] == 201
        await town.pod("p3")
        sick = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        await town.ask("PATCH", f"{PODS}/p3/status", sick, content_type=MERGE)
        assert (await evict(town, "p3"))[0] == 201  # unhealthy, while enough are healthy
        await budget(town, "c")
        await town.pod("p4")
        assert (await evict(town, "p4"))[0] == 500  # two budgets

    run_world(main)


def test_a_late_eviction_leaves_the_replacement_of_the_same_name() -> None:
    async def main(town: ApiServerWorld) -> None:
        pod = await town.pod("p1")
        await town.ask("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 0})
        await town.pod("p1")
        given = await town.kube.evict("p1", namespace="default", uid=pod["metadata"]["uid"])
        assert given == PodGone()
        _, there = await town.ask("GET", f"{PODS}/p1")
        assert "deletionTimestamp" not in there["metadata"]

    run_world(main)


def test_a_pod_is_bound_once() -> None:
    async def main(town: ApiServerWorld) -> None:
        spec = {"containers": [{"name": "c", "image": "x"}]}
        await town.ask("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
        binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
        assert (await town.ask("POST", f"{PODS}/p/binding", binding))[0] == 201
        _, pod = await town.ask("GET", f"{PODS}/p")
        assert pod["spec"]["nodeName"] == "n1"
        assert pod["status"]["conditions"][0]["type"] == "PodScheduled"
        code, refused = await town.ask("POST", f"{PODS}/p/binding", binding)
        assert (code, refused["reason"]) == (409, "Conflict")

    run_world(main)
