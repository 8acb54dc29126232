"""Subscriptions to changes: each is the function that ends it."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

Unsubscribe = Callable[[], None]


@contextmanager
def subscribed(*subscriptions: Unsubscribe) -> Generator[None]:
    """End the subscriptions with the block: what is over, such as a term of leadership, must not
    react to a change any more.
    """
    try:
        yield
    finally:
        join_subscriptions(*subscriptions)()


def join_subscriptions(*subscriptions: Unsubscribe) -> Unsubscribe:
    """Return a function that ends them all."""

    def unsubscribe() -> None:
        for end in subscriptions:
            end()

    return unsubscribe
