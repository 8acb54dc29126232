"""Where nobody can ask the GPUs, every question says so, and nothing is held."""

import pytest

from libs.host.gpus.port import GpuHandle, GpusUnavailable, UnsupportedGpus


def test_every_question_is_refused_in_words() -> None:
    gpus = UnsupportedGpus()
    for question in (gpus.open, gpus.describe, gpus.sample, gpus.errors):
        with pytest.raises(GpusUnavailable, match="no reader of the driver's library"):
            question()


def test_an_agent_says_why_it_sees_none_and_lets_go_all_the_same() -> None:
    hold = GpuHandle(UnsupportedGpus())
    assert hold.acquire() is None
    assert hold.why.startswith("the GPUs of a real machine cannot be queried")
    hold.release()
    assert hold.acquire() is None
    assert "told to let go" in hold.why
