"""GPUs of real machines, which cannot be queried yet."""

import pytest

from libs.host.gpus.port import GpuHandle, GpusUnavailable, UnsupportedGpus


def test_every_query_is_refused_with_a_reason() -> None:
    gpus = UnsupportedGpus()
    for query in (gpus.open, gpus.describe, gpus.sample, gpus.errors):
        with pytest.raises(GpusUnavailable, match="does not read the driver's library"):
            query()


def test_a_handle_keeps_the_reason_and_can_be_released() -> None:
    handle = GpuHandle(UnsupportedGpus())
    assert handle.acquire() is None
    assert handle.why.startswith("the GPUs of a real machine cannot be queried")
    handle.release()
    assert handle.acquire() is None
    assert "released while the driver changes" in handle.why
