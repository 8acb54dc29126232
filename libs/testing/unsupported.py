"""Loop methods that a virtual loop refuses, each with an error that says what to do instead.

A virtual sleep beside a real thread or socket would make every run different.
"""

import asyncio
from typing import Any, NoReturn

from libs.testing.errors import NotSimulated

_THREADS = (
    "there are no threads: call it inline, through a port that uses a thread only outside of here"
)
_SOCKETS = (
    "there are no sockets: use the in-process transports, or run this on a real loop "
    "with a server of its own"
)
_PROCESSES = "there are no processes: give it a port with a simulated one, or run it on a real loop"
_SIGNALS = "there are no signals: they belong to the process, call what the handler would call"
_FACTORY = "its tasks hash by a count, and another factory would undo that"


def unsupported_message(what: str, why: str) -> NotSimulated:
    return NotSimulated(f"{what} was tried in virtual time; {why}")


def _refusal(name: str, why: str) -> Any:
    def refuse(_self: object, *args: object, **named: object) -> NoReturn:
        # Only plain values: the repr of other objects has addresses, which differ between runs.
        plain = [repr(each) for each in (*args, *named.values()) if isinstance(each, (str, int))]
        raise unsupported_message(f"loop.{name}({', '.join(plain)})", why)

    return refuse


class UnsupportedLoopCalls(asyncio.AbstractEventLoop):
    """Refuse every method that would reach out of the simulation."""

    run_in_executor = _refusal("run_in_executor", _THREADS)
    set_default_executor = _refusal("set_default_executor", _THREADS)

    getaddrinfo = _refusal("getaddrinfo", _SOCKETS)
    getnameinfo = _refusal("getnameinfo", _SOCKETS)
    create_connection = _refusal("create_connection", _SOCKETS)
    create_server = _refusal("create_server", _SOCKETS)
    create_unix_connection = _refusal("create_unix_connection", _SOCKETS)
    create_unix_server = _refusal("create_unix_server", _SOCKETS)
    create_datagram_endpoint = _refusal("create_datagram_endpoint", _SOCKETS)
    connect_accepted_socket = _refusal("connect_accepted_socket", _SOCKETS)
    start_tls = _refusal("start_tls", _SOCKETS)
    sendfile = _refusal("sendfile", _SOCKETS)
    sock_recv = _refusal("sock_recv", _SOCKETS)
    sock_recv_into = _refusal("sock_recv_into", _SOCKETS)
    sock_recvfrom = _refusal("sock_recvfrom", _SOCKETS)
    sock_recvfrom_into = _refusal("sock_recvfrom_into", _SOCKETS)
    sock_sendall = _refusal("sock_sendall", _SOCKETS)
    sock_sendto = _refusal("sock_sendto", _SOCKETS)
    sock_connect = _refusal("sock_connect", _SOCKETS)
    sock_accept = _refusal("sock_accept", _SOCKETS)
    sock_sendfile = _refusal("sock_sendfile", _SOCKETS)
    add_reader = _refusal("add_reader", _SOCKETS)
    remove_reader = _refusal("remove_reader", _SOCKETS)
    add_writer = _refusal("add_writer", _SOCKETS)
    remove_writer = _refusal("remove_writer", _SOCKETS)

    connect_read_pipe = _refusal("connect_read_pipe", _PROCESSES)
    connect_write_pipe = _refusal("connect_write_pipe", _PROCESSES)
    subprocess_shell = _refusal("subprocess_shell", _PROCESSES)
    subprocess_exec = _refusal("subprocess_exec", _PROCESSES)

    add_signal_handler = _refusal("add_signal_handler", _SIGNALS)
    remove_signal_handler = _refusal("remove_signal_handler", _SIGNALS)

    set_task_factory = _refusal("set_task_factory", _FACTORY)

    def foreign_thread(self, name: str) -> NotSimulated:
        """Build the error for a call from another thread than the loop's own."""
        return unsupported_message(f"loop.{name}() from another thread", _THREADS)
