"""Loopback ports that stay ours while nobody listens on them."""

import socket

from libs.testing.errors import ServerFailed

HOST = "127.0.0.1"


class ReservedPort:
    """Held by a bound socket that never listens: connects are refused, no other program and no
    outgoing connection is given the number, and whoever knows it may listen beside.
    """

    def __init__(self, wanted: int = 0) -> None:
        self._held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # The listener beside sets it too: that is what makes the two possible.
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._held.bind((HOST, wanted))
        except OSError as error:
            self._held.close()
            raise ServerFailed(
                f"port {wanted} of {HOST} could not be reserved ({error}): "
                f"end what holds it, or let the system choose with port=0"
            ) from error
        self.number = int(self._held.getsockname()[1])

    def release(self) -> None:
        """Anybody may have it now."""
        self._held.close()
