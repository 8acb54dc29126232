"""Reserved loopback ports."""

import socket

from libs.testing.errors import ServerFailed

HOST = "127.0.0.1"


class ReservedPort:
    """A port held by a bound socket that never listens.

    Connections are refused, the system gives the number to nothing else, and a server that is told
    the number can listen on it.
    """

    def __init__(self, wanted: int = 0) -> None:
        self._held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Makes a second socket on the port possible, together with the listener's own option.
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._held.bind((HOST, wanted))
        except OSError as error:
            self._held.close()
            raise ServerFailed(
                f"cannot reserve port {wanted} of {HOST} ({error}): "
                "end what holds it, or let the system choose with port=0"
            ) from error
        self.number = int(self._held.getsockname()[1])

    def release(self) -> None:
        self._held.close()
