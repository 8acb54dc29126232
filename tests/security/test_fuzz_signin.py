"""Random tokens and requests at sign-in; `make soak ARGS=fuzz` runs more of them."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from joserfc import jws

from libs.bus import callout
from services.signin import claims, gate, objects, refusal_log, responder
from services.signin.claims import Cause, Refused
from services.signin.objects import Knowledge
from tests.security.fuzz_messages import FUZZ_SEEDS
from tests.security.fuzz_signin import fuzz_signin
from tests.security.fuzz_tokens import second_signature
from tests.unit.signin.world import World, play

SEEDS = int(os.environ.get(FUZZ_SEEDS, "3"))
CASES = 250 * SEEDS
PLANTED_CASES = 2_000
"""Cases in which every planted fault is found; most are found in the first hundred."""


def test_nothing_forged_is_granted_and_nothing_fails() -> None:
    async def story(world: World) -> None:
        await fuzz_signin(world, cases=CASES)

    play(story)


def test_another_text_of_a_refused_token_is_refused() -> None:
    """Whoever has a signature of ECDSA can compute a second one."""

    async def story(world: World) -> None:
        agent = await world.agent()
        await world.settled()
        token = agent.token()
        world.parts.background.refuse(token)
        for each in (token, second_signature(token)):
            assert (await world.sign_in(each)).error

    play(story)


def ignoring(cause: Cause, check: Callable[..., Any], instead: Any = None) -> Callable[..., Any]:
    """Return a check that does not refuse for this cause."""

    def ignorant(*args: Any, **options: Any) -> Any:
        found = check(*args, **options)
        return instead if isinstance(found, Refused) and found.cause is cause else found

    return ignorant


def known(*_: object, **__: object) -> Knowledge:
    return Knowledge.KNOWN


def true(*_: object, **__: object) -> bool:
    return True


def nothing(*_: object, **__: object) -> None:
    return None


def keeping(self: Any, refused: Refused, *, host: str, claimed: str) -> None:
    self.__dict__.setdefault("kept", []).append([host, claimed, [refused.reason] * 20])


PLANTED: dict[str, tuple[object, str, Any]] = {
    "signature": (jws, "validate_compact", true),
    "issuer": (
        claims,
        "_check_addressees",
        ignoring(Cause.ISSUER, vars(claims)["_check_addressees"]),
    ),
    "audience": (
        claims,
        "_check_addressees",
        ignoring(Cause.AUDIENCE, vars(claims)["_check_addressees"]),
    ),
    "expiry": (claims, "_check_times", ignoring(Cause.EXPIRED, vars(claims)["_check_times"])),
    "begin": (claims, "_check_times", ignoring(Cause.NOT_YET_VALID, vars(claims)["_check_times"])),
    "cluster's objects": (objects, "judge", known),
    "the server's signature": (callout, "_verify", nothing),
    "the request's age": (responder, "MAX_AGE", 1e9),
    "kind of client": (gate, "PLAIN", "websocket"),
    "an error": (claims, "_NAME", None),
    "memory": (refusal_log.RefusalLog, "refused", keeping),
}


@pytest.mark.parametrize("fault", PLANTED)
@pytest.mark.dear("as many cases as it takes until the fault shows")
def test_planted_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        with pytest.raises(AssertionError) as found:
            await fuzz_signin(world, cases=PLANTED_CASES)
        assert str(found.value)

    monkeypatch.setattr(*PLANTED[fault])
    play(story)
