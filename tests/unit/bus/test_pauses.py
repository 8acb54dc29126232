"""How long a connection waits before each try."""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from libs.bus.connect import SPREAD, NatsSettings
from libs.bus.nats.pauses import Pauses
from libs.contracts.identities import Identity, Writer

AGENT = Identity(writer=Writer.DRIVER, node="a")
CLIENTS = 300


def pauses(
    seed: int = 1, *, identity: Identity = AGENT, has_token: bool = True, spread: float = SPREAD
) -> Pauses:
    source = random.Random(seed)
    return Pauses(source, identity=identity, has_token=has_token, spread=spread)


def first_tries(**settings: Any) -> list[float]:
    """Return when each client of a fleet tries first after the loss of the server."""
    tries: list[float] = []
    for seed in range(CLIENTS):
        each = pauses(seed, **settings)
        each.lost(lasted=True)
        tries.append(each.before_reconnect())
    return sorted(tries)


def test_agents_let_sign_in_return_first_and_spread_evenly() -> None:
    tries = first_tries()
    assert 2.0 <= tries[0] < 2.5
    assert 11.5 < tries[-1] <= 12.0
    in_each_second = [sum(2 + n <= each < 3 + n for each in tries) for n in range(10)]
    assert max(in_each_second) < 2 * CLIENTS / SPREAD


def test_services_wait_for_sign_in_only() -> None:
    tries = first_tries(spread=0.0)
    assert 2.0 <= tries[0] < tries[-1] <= 3.0


def test_a_client_with_a_key_does_not_wait_for_sign_in() -> None:
    tries = first_tries(has_token=False, spread=0.0)
    assert 0.0 <= tries[0] < tries[-1] <= 1.0


def test_further_tries_grow_and_stay_spread() -> None:
    each = pauses()
    each.lost(lasted=True)
    tries = [each.before_reconnect() for _ in range(200)]
    assert all(0.0 < pause < 30.0 for pause in tries[1:])
    assert max(tries) > 25.0
    each.lost(lasted=False)
    assert max(each.before_reconnect() for _ in range(50)) > 25.0
    each.lost(lasted=True)
    assert each.before_reconnect() <= 12.0


@given(st.integers(), st.integers(1, 100))
def test_sign_in_itself_tries_every_second(seed: int, count: int) -> None:
    each = pauses(seed, identity=Identity(writer=Writer.SIGN_IN), has_token=False, spread=0.0)
    each.lost(lasted=True)
    for _ in range(count):
        assert each.before_reconnect() <= 1.0
        assert each.before_opening() <= 1.0


def test_agents_are_spread_by_default() -> None:
    assert NatsSettings(node="a", token_file="/token").spread == SPREAD
    assert NatsSettings(token_file="/token").spread == 0.0
    assert NatsSettings(node="a").spread == 0.0
