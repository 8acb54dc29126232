"""How GPUs could be divided, as their driver says: asked once, and again when that may change."""

from msgspec.structs import replace

from libs.contracts.facts import MigBoard, MigKind
from libs.host.gpus.division import GpuDivision, InstanceProfile
from libs.host.gpus.memory_mig import MemoryMig
from libs.host.gpus.port import GpuHandle
from services.discovery.node.mig_boards import MigBoards
from tests.builders.fake_machine import FakeDriver, gpu

PROFILES = (
    InstanceProfile(name="1g.50gb", id=19, slices=1, size=1, starts=(0, 1, 2), most=3),
    InstanceProfile(name="7g.400gb", id=0, slices=7, size=8, starts=(0,), most=1),
)
KINDS = (
    MigKind(name="1g.50gb", most=3, size=1, starts=(0, 1, 2)),
    MigKind(name="7g.400gb", most=1, size=8, starts=(0,)),
)


class Mig(MemoryMig):
    """Like drivers that name no profile while MIG is off, on request."""

    asked = 0
    is_quiet = False

    def division(self, uuid: str) -> GpuDivision:
        self.asked += 1
        found = super().division(uuid)
        return replace(found, profiles=()) if self.is_quiet and not found.mig else found


def machine() -> tuple[FakeDriver, Mig, GpuHandle]:
    mig = Mig(["GPU-0", "GPU-1"], PROFILES, is_used=lambda _uuid: False)
    driver = FakeDriver(loaded="580.1", mig=mig)
    driver.gpus.change([gpu(0), gpu(1), gpu(2)])
    return driver, mig, GpuHandle(driver.gpus)


def read(boards: MigBoards, hold: GpuHandle) -> tuple[MigBoard, ...] | None:
    return boards.read(hold, hold.gpus.describe() if hold.acquire() else None)


def test_gpus_that_can_be_divided_alike_are_one_board_and_the_driver_is_asked_once() -> None:
    driver, mig, hold = machine()
    boards = MigBoards()
    for _ in range(3):
        assert read(boards, hold) == (MigBoard(gpus=(0, 1), kinds=KINDS),)
    assert mig.asked == 2
    driver.set_version("")
    assert read(boards, hold) is None
    driver.set_version("590.1")
    assert read(boards, hold) == (MigBoard(gpus=(0, 1), kinds=KINDS),)
    assert mig.asked == 4, "another driver may name others"


def test_a_driver_that_names_profiles_only_while_mig_is_on_is_asked_again_then() -> None:
    _, mig, hold = machine()
    mig.is_quiet = True
    boards = MigBoards()
    assert read(boards, hold) == ()
    mig.is_quiet = False
    mig.set_mode("GPU-1", on=True)
    mig.is_quiet = True
    assert read(boards, hold) == (MigBoard(gpus=(1,), kinds=KINDS),)


def test_without_gpus_nothing_is_said() -> None:
    assert MigBoards().read(None, None) is None
