"""What is known of the slots when their stream is lost and made anew."""

from libs.bus.slots import SlotWriter, SlotWritten
from libs.contracts import subjects
from libs.contracts.commands import Command, Idle, Order, Quiesce
from libs.contracts.identities import Identity, Writer
from libs.contracts.streams import COMMANDS
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim, run
from services.scheduler.slot_cache import SlotCache

OF = subjects.Command(cluster="default", node="n1", component="driver")


def command(body: Idle | Quiesce, op: int) -> Command:
    return Command.of(
        body,
        node="n1",
        node_uid="uid-n1",
        boot_id="boot",
        epoch=1,
        order=Order(1, op),
        deadline=1e12,
    )


def test_a_stream_that_numbers_from_the_beginning_is_believed() -> None:
    async def main(sim: Sim) -> None:
        server = LocalServer(clock=sim.clock, random=sim.random_for("bus"))
        bus = server.connect(Identity(writer=Writer.SCHEDULER))
        changed: list[str] = []
        await bus.ensure(COMMANDS)
        slots = SlotWriter(bus=bus, clock=sim.clock)
        async with SlotCache(bus=bus, on_change=changed.append) as book:
            for op in (1, 2, 3):
                answer = await slots.write(OF, command(Idle(), op))
                assert isinstance(answer, SlotWritten)
                assert book.learn("n1", "driver", command(Idle(), op), answer.sequence)
            await sim.clock.sleep(1)
            server.lose_stream(COMMANDS, remade=True)
            answer = await slots.write(OF, command(Quiesce(), 4))
            assert isinstance(answer, SlotWritten)
            assert answer.sequence == 1
            # Nobody has said yet that the stream is another one.
            assert not book.learn("n1", "driver", command(Quiesce(), 4), answer.sequence)
            await sim.clock.sleep(60)
            assert book.of("n1")["driver"].order == Order(1, 4)
            assert book.is_current

    run(main, seed=1)
