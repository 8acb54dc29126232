"""Tokens in files, as they are found while a pod runs."""

from pathlib import Path

import pytest

from libs.bus.credentials import MAX_TOKEN, Credentials


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "No such file", id="absent"),
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(b" \n", "is empty", id="blank"),
        pytest.param(b"a" * (MAX_TOKEN + 1), "is longer than a token", id="too long"),
    ],
)
def test_a_file_without_a_token_is_an_os_error(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(OSError, match=words):
        Credentials(token_file=str(file)).token()


def test_a_token_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    credentials = Credentials(token_file=str(file))
    for content, token in ((b"abc\n", "abc"), (b"def", "def"), (b"\xff", "\ufffd")):
        file.write_bytes(content)
        assert credentials.token() == token


def test_a_token_is_not_used_beside_a_key() -> None:
    assert Credentials(token_file="/token").signs_in
    assert not Credentials(token_file="/token", nkey_seed_file="/seed").signs_in
