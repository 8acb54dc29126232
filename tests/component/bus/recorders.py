"""Recording subscribers and followers."""

from libs.bus.port import StoredMessage


class RecordingFollower:
    """A follower that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        """`began`, `began anew`, `caught up`, `lost`, and of each message its sequence and data."""
        self.messages: list[StoredMessage] = []

    @property
    def data(self) -> list[bytes]:
        return [each.data for each in self.messages]

    def began(self, recreated: bool, /) -> None:
        self.calls.append("began anew" if recreated else "began")

    def received(self, message: StoredMessage) -> None:
        self.calls.append(f"{message.sequence} {message.data.decode(errors='replace')}")
        self.messages.append(message)

    def caught_up(self) -> None:
        self.calls.append("caught up")

    def lost(self) -> None:
        self.calls.append("lost")


class RecordingHandler:
    """A handler that records what it receives."""

    def __init__(self) -> None:
        self.received: list[tuple[str, bytes]] = []

    def __call__(self, subject: str, data: bytes, _reply: str) -> None:
        self.received.append((subject, data))
