"""The life of a small cluster leaves the same behind on both servers."""

import secrets
from typing import Any

from libs.testing.realkube.cluster import RealKube
from tests.component.kube import remains
from tests.component.kube.life import Life
from tests.component.kube.places import Place, Server
from tests.component.kube.remains import Written
from tests.component.kube.servers import real, simulated


async def lived(server: Server) -> tuple[dict[str, Any], Written]:
    """What is there in the end, and what was written to get there."""
    place = Place(server, token=secrets.token_hex(4))
    await place.open()
    try:
        async with place.machines() as fleet:
            await Life(place, fleet).live()
            return await remains.objects(place), await remains.writes(place)
    finally:
        await place.close()


async def test_a_life_leaves_the_same_behind_on_both_servers(plane: RealKube) -> None:
    async with real(plane) as server:
        objects, writes = await lived(server)
    async with simulated() as server:
        there, written = await lived(server)

    assert written == writes
    assert there == objects
