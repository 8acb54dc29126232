"""Leader election and event recording through the client, on either server."""

import asyncio
import random
from contextlib import suppress

from libs.kube.events import EventRecorder, InvolvedObject
from libs.kube.lease.election import LeaderElector
from libs.kube.resources import CONFIG_MAPS, EVENTS, LEASES
from libs.testing.simulation import make_env
from tests.builders.objects import config_map
from tests.component.kube.raw_requests import get_json
from tests.component.kube.sandbox import Kube, Sandbox
from tests.support import eventually


async def test_leadership_passes_from_one_candidate_to_the_next(
    sandbox: Sandbox, kube: Kube
) -> None:
    await kube.create(LEASES, {"metadata": {"name": "leader"}})
    leading: list[str] = []
    terms: list[tuple[str, str | None]] = []

    async def lead(name: str) -> None:
        candidate = LeaderElector(
            kube=sandbox.kube(manager=name),
            namespace=sandbox.namespace,
            name="leader",
            identity=name,
            env=make_env(random=random.Random(name)),
        )
        async with candidate.lead():
            leading.append(name)
            now = await kube.get(LEASES, "leader")
            terms.append((candidate.holder, now.spec.holder_identity))
            assert leading == [name]
            leading.remove(name)

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b"):
            group.create_task(lead(name), name=name)

    assert [holder for holder, _ in terms] == [recorded for _, recorded in terms]
    assert len({holder for holder, _ in terms}) == 2
    lease = await kube.get(LEASES, "leader")
    assert not lease.spec.holder_identity
    assert lease.spec.lease_transitions == 2


async def test_a_repeated_event_is_counted(sandbox: Sandbox, kube: Kube) -> None:
    target = await kube.create(CONFIG_MAPS, config_map("a"))
    events = EventRecorder(kube=kube, env=make_env())
    about = InvolvedObject(
        api_version="v1",
        kind="ConfigMap",
        name="a",
        namespace=sandbox.namespace,
        uid=target.metadata.uid,
    )
    writing = asyncio.create_task(events.run())
    try:
        for _ in range(2):
            events.record(about, type="Normal", reason="Seen", message="it is there")
        by_reason = "involvedObject.name=a,reason=Seen"

        async def written() -> bool:
            page = await kube.list_page(EVENTS, fields=by_reason)
            return len(page.items) == 1

        await eventually(written)
    finally:
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
    (event,) = (await kube.list_page(EVENTS, fields=by_reason)).items
    read = await get_json(kube, EVENTS, event.metadata.name)
    assert read["count"] == 2
    assert read["source"]["component"] == "nvidia-gpu-operator"
    assert read["message"] == "it is there"
    assert read["firstTimestamp"] <= read["lastTimestamp"]
