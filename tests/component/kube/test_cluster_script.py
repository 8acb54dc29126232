"""One script gives the same objects and writes on both servers."""

import secrets
from typing import Any

from libs.testing.realkube.cluster import RealKube
from tests.component.kube import cluster_state
from tests.component.kube.cluster_script import ClusterScript
from tests.component.kube.cluster_state import Written
from tests.component.kube.sandbox import Sandbox, ServerUnderTest
from tests.component.kube.servers import real, simulated


async def run_script(server: ServerUnderTest) -> tuple[dict[str, Any], Written]:
    """Run the script; return the remaining objects and all writes."""
    sandbox = Sandbox(server, token=secrets.token_hex(4))
    await sandbox.open()
    try:
        async with sandbox.machines() as fleet:
            await ClusterScript(sandbox, fleet).run()
            return await cluster_state.collect_objects(sandbox), await cluster_state.collect_writes(
                sandbox
            )
    finally:
        await sandbox.close()


async def test_both_servers_end_in_the_same_state(plane: RealKube) -> None:
    async with real(plane) as server:
        real_objects, real_writes = await run_script(server)
    async with simulated() as server:
        objects, writes = await run_script(server)

    assert writes == real_writes
    assert objects == real_objects
