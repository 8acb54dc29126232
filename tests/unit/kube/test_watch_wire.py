"""Lines out of bytes that come cut anywhere."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from libs.kube.watch import LineBuffer


@given(
    lines=st.lists(st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    begun=st.binary(max_size=3).map(lambda line: line.replace(b"\n", b"")),
    cuts=st.lists(st.integers(0, 80)),
)
def test_lines_do_not_depend_on_chunks(lines: list[bytes], begun: bytes, cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines) + begun
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    splitting = LineBuffer()
    got: list[bytes] = []
    for start, end in pairwise(edges):
        got.extend(splitting.feed(data[start:end]))
    assert got == [line for line in lines if line]
    assert splitting.has_partial == bool(begun)
