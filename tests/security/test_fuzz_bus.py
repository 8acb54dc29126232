"""Random bytes at the server and at every decoder; `make soak ARGS=fuzz` runs more seeds."""

import os
import random
from contextlib import suppress

import pytest

from libs.contracts import subjects
from libs.contracts.catalogue import FORMS
from libs.contracts.message import MalformedMessage
from tests.contracts import goldens
from tests.security.fuzz_bus import fuzz_bus
from tests.security.fuzz_messages import FUZZ_SEEDS, content, operation
from tests.security.identities import IDENTITIES
from tests.security.world import World

SEEDS = int(os.environ.get(FUZZ_SEEDS, "3"))


@pytest.mark.dear("random bytes to every reader, from three seeds")
async def test_every_reader_survives_random_operations(guarded: World) -> None:
    await fuzz_bus(guarded, range(SEEDS))


def test_a_decoder_raises_nothing_but_malformed_message() -> None:
    for seed in range(1_000 * SEEDS):
        chance = random.Random(f"decoder {seed}")
        data, form = content(chance), chance.choice(FORMS)
        with suppress(MalformedMessage):
            goldens.write(form, goldens.read(form, data).message)


def test_a_parser_of_subjects_raises_nothing_but_not_a_subject() -> None:
    for seed in range(500 * SEEDS):
        chance = random.Random(f"subject {seed}")
        words = operation(chance, chance.choice(IDENTITIES)).split(b" ")
        text = words[min(1, len(words) - 1)].decode(errors="backslashreplace")
        for parse in (subjects.parse, subjects.slot_of):
            with suppress(subjects.NotASubject):
                parse(text)
        subjects.is_allowed_reply(text, "default")
