"""Which texts of a ConfigMap a service reads on its event loop."""

from libs.policy.plugin_config.texts import MAX_CONFIGS, MAX_TEXT, MAX_TEXTS, readable_texts


def test_short_texts_are_read_and_long_ones_are_not() -> None:
    data = {"b": "version: v1", "a": "", "long": "x" * (MAX_TEXT + 1)}
    assert readable_texts(data) == {"a": "", "b": "version: v1"}


def test_no_more_is_read_than_a_loop_can_bear() -> None:
    many = {f"{number:04}": "x" * MAX_TEXT for number in range(20)}
    read = readable_texts({**many, "9999": "short"})
    assert list(read) == sorted(many)[: MAX_TEXTS // MAX_TEXT]
    tiny = {f"{number:04}": "" for number in range(2 * MAX_CONFIGS)}
    assert list(readable_texts(tiny)) == sorted(tiny)[:MAX_CONFIGS]
