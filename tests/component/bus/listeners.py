"""Who listens in the tests of the bus, and writes down what it is told."""

from libs.bus.port import Stored


class Notes:
    """A follower that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        """`began`, `caught up`, `lost`, and of each message its sequence and data."""
        self.messages: list[Stored] = []

    def began(self) -> None:
        self.told.append("began")

    def received(self, message: Stored) -> None:
        self.told.append(f"{message.sequence} {message.data.decode()}")
        self.messages.append(message)

    def caught_up(self) -> None:
        self.told.append("caught up")

    def lost(self) -> None:
        self.told.append("lost")


class Ear:
    """A handler that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []

    def __call__(self, subject: str, data: bytes, _reply: str) -> None:
        self.heard.append((subject, data))
