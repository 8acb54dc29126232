"""The telemetry agent: what it shows is true now, and nothing is held when it was told so."""

from libs.contracts.commands import Idle, Quiesce
from libs.host.gpus.port import DriverLibrary
from services.telemetry.node.sampler import INTERVAL, STALE_AFTER
from tests.unit.agent_world import BOOT, NODE, UID, AgentWorld
from tests.unit.telemetry.node.world import DRIVER, GpuWorld, gpu, received_batches

TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
XID = "DCGM_FI_DEV_XID_ERRORS"


def test_gpus_are_measured_and_sent_every_half_minute() -> None:
    hands = GpuWorld()

    async def story(ground: AgentWorld) -> None:
        async with received_batches(ground) as batches, ground.agent() as service:
            await ground.clock.sleep(10 * INTERVAL + 1)
            assert service.unready_reasons() == []
            assert hands.values(TEMPERATURE) == {"0": 40, "1": 41}
            labels = hands.families()[TEMPERATURE].samples[1].labels
            assert labels["device"] == "nvidia5"
            assert labels["pci_bus_id"] == "00000000:1B:00.0"
            assert labels["Hostname"] == NODE
            assert labels["DCGM_FI_DRIVER_VERSION"] == DRIVER
        assert [one.seq for one in batches] == list(range(11))
        last = batches[-1]
        assert (last.node, last.node_uid, last.boot_id) == (NODE, UID, BOOT)
        assert (last.driver_version, last.xids) == (DRIVER, 0)
        assert [one.temperature_c for one in last.gpus] == [40, 41]
        assert hands.counted("sluice_telemetry_sweeps_total", outcome="measured") == 11
        assert hands.counted("sluice_telemetry_sweeps_total", outcome="waiting") == 0

    hands.play(story)


def test_without_a_driver_it_says_what_it_waits_for_and_begins_when_there_is_one() -> None:
    hands = GpuWorld()
    hands.library = None

    async def story(ground: AgentWorld) -> None:
        async with received_batches(ground) as batches, ground.agent() as service:
            await ground.clock.sleep(1)
            assert service.unready_reasons() == ["telemetry: gpus: no NVIDIA driver is loaded"]
            assert hands.page().body == b""
            assert (batches[-1].driver_version, batches[-1].gpus) == ("", [])
            hands.library = DriverLibrary(driver_version="580.95.05")
            await ground.clock.sleep(INTERVAL)
            assert service.unready_reasons() == []
            assert hands.values(TEMPERATURE) == {"0": 40, "1": 41}
            hands.library = None
            await ground.clock.sleep(INTERVAL)
            assert hands.page().body == b""
            assert hands.held == 0
        assert hands.counted("sluice_telemetry_sweeps_total", outcome="waiting") == 2

    hands.play(story)


def test_quiesce_releases_the_gpus_and_drops_the_last_sweep() -> None:
    hands = GpuWorld()

    async def story(ground: AgentWorld) -> None:
        async with received_batches(ground) as batches:
            async with ground.agent() as service:
                await ground.clock.sleep(5)
                assert hands.held == 1
                order = await ground.send_command(Quiesce())
                await ground.until(lambda: ground.result(order))
                assert hands.held == 0
                assert hands.page().body == b""
                assert batches[-1].gpus == []
                assert "are released while the driver changes" in service.unready_reasons()[0]
                await ground.clock.sleep(4 * STALE_AFTER)
                assert hands.held == 0
                assert hands.page().body == b""
                (why,) = service.unready_reasons()
                assert "are released while the driver changes" in why
            async with ground.agent():
                await ground.clock.sleep(4 * STALE_AFTER)
                assert hands.held == 0
                assert hands.page().body == b""
                order = await ground.send_command(Idle())
                await ground.until(lambda: ground.result(order))
                assert hands.held == 1
                assert hands.values(TEMPERATURE) == {"0": 40, "1": 41}
                assert len(batches[-1].gpus) == 2

    hands.play(story)


def test_a_gpu_that_fell_off_the_bus_keeps_its_error_and_no_reading() -> None:
    hands = GpuWorld()

    async def story(ground: AgentWorld) -> None:
        async with received_batches(ground) as batches, ground.agent() as service:
            await ground.clock.sleep(1)
            assert hands.values(XID) == {}
            hands.mute.add(1)
            hands.gpus.fail(gpu(1).uuid, 79)
            await ground.clock.sleep(INTERVAL)
            assert hands.values(TEMPERATURE) == {"0": 40}
            assert hands.values(XID) == {"1": 79}
            labels = hands.families()[XID].samples[0].labels
            assert (labels["err_code"], labels["err_msg"]) == ("79", "GPU has fallen off the bus")
            assert service.unready_reasons() == []
            hands.gpus.change([gpu(0)])
            await ground.clock.sleep(INTERVAL)
            assert hands.values(TEMPERATURE) == {"0": 40}
            assert hands.values(XID) == {}
        assert [len(one.gpus) for one in batches] == [2, 2, 1]
        assert [one.xids for one in batches] == [0, 1, 1]

    hands.play(story)


def test_each_report_of_an_xid_counts_once() -> None:
    hands = GpuWorld()

    async def story(ground: AgentWorld) -> None:
        async with received_batches(ground) as batches, ground.agent():
            await ground.clock.sleep(1)
            hands.gpus.fail("GPU-0", 31)
            hands.gpus.fail("GPU-0", 31)
            await ground.clock.sleep(3 * INTERVAL)
            hands.gpus.fail("GPU-0", 13)
            await ground.clock.sleep(3 * INTERVAL)
            assert hands.values(XID) == {"0": 13}
            name = "sluice_telemetry_xid_errors_total"
            assert hands.counted(name, uuid="GPU-0", xid="31") == 2
            assert hands.counted(name, uuid="GPU-0", xid="13") == 1
        assert [one.xids for one in batches] == [0, 2, 2, 2, 3, 3, 3]

    hands.play(story)


def test_an_error_counts_although_nothing_else_could_be_read_after_it() -> None:
    hands = GpuWorld()

    async def story(ground: AgentWorld) -> None:
        async with received_batches(ground) as batches, ground.agent() as service:
            await ground.clock.sleep(1)
            hands.gpus.fail("GPU-1", 79)
            hands.gone = True
            await ground.clock.sleep(INTERVAL)
            assert hands.page().body == b""
            assert service.unready_reasons() == [
                "telemetry: gpus: the driver's library does not answer"
            ]
            hands.gone = False
            await ground.clock.sleep(INTERVAL)
            assert hands.values(XID) == {"1": 79}
        assert [one.xids for one in batches] == [0, 1, 1]

    hands.play(story)


def test_another_process_begins_another_run_without_the_errors_of_the_last() -> None:
    hands = GpuWorld()

    async def story(ground: AgentWorld) -> None:
        async with received_batches(ground) as batches:
            async with ground.agent():
                hands.gpus.fail("GPU-0", 31)
                await ground.clock.sleep(INTERVAL + 1)
                assert hands.values(XID) == {"0": 31}
            async with ground.agent():
                await ground.clock.sleep(1)
                assert hands.values(XID) == {}
        first, second, third = batches
        assert first.run == second.run != third.run
        assert [first.seq, second.seq, third.seq] == [0, 1, 0]
        assert [first.xids, second.xids, third.xids] == [1, 1, 0]

    hands.play(story)


def test_while_the_bus_is_away_the_page_is_served_and_lost_batches_are_counted() -> None:
    hands = GpuWorld()

    async def story(ground: AgentWorld) -> None:
        async with received_batches(ground) as batches, ground.agent():
            await ground.clock.sleep(1)
            ground.server.stop()
            await ground.clock.sleep(2 * INTERVAL)
            assert hands.values(TEMPERATURE) == {"0": 40, "1": 41}
            assert hands.counted("sluice_telemetry_unsent_batches_total") == 2
            ground.server.start()
            await ground.clock.sleep(INTERVAL)
            assert [one.seq for one in batches] == [0, 3]

    hands.play(story)


def test_beside_the_metrics_there_are_the_pages_that_probes_and_people_ask_for() -> None:
    hands = GpuWorld()

    async def story(ground: AgentWorld) -> None:
        async with ground.agent():
            await ground.clock.sleep(1)
            assert set(hands.pages) == {"/", "/metrics", "/health"}
            assert (hands.page("/health").status, hands.page("/health").body) == (200, b"OK")
            assert hands.page().content_type.startswith("text/plain; version=0.0.4")
            assert b'href="/metrics"' in hands.page("/").body

    hands.play(story)
