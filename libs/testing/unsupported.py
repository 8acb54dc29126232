"""What a virtual loop does not have: each is refused by name, at the call, with what to do instead.

A sleep in virtual time beside a thread or a socket in real time gives another run each time, so
nothing of the kind may slip through. Knows no loop: `VirtualLoop` inherits the refusals.
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
    """The one wording of all refusals."""
    return NotSimulated(f"{what} was tried in virtual time; {why}")


def _refused(name: str, why: str) -> Any:
    def refuse(_self: object, *args: object, **named: object) -> NoReturn:
        # Only plain values: the address in another object's repr differs between runs.
        shown = [repr(each) for each in (*args, *named.values()) if isinstance(each, (str, int))]
        raise unsupported_message(f"loop.{name}({', '.join(shown)})", why)

    return refuse


class UnsupportedLoopCalls(asyncio.AbstractEventLoop):
    """Every method of a loop that would reach out of the simulation."""

    run_in_executor = _refused("run_in_executor", _THREADS)
    set_default_executor = _refused("set_default_executor", _THREADS)

    getaddrinfo = _refused("getaddrinfo", _SOCKETS)
    getnameinfo = _refused("getnameinfo", _SOCKETS)
    create_connection = _refused("create_connection", _SOCKETS)
    create_server = _refused("create_server", _SOCKETS)
    create_unix_connection = _refused("create_unix_connection", _SOCKETS)
    create_unix_server = _refused("create_unix_server", _SOCKETS)
    create_datagram_endpoint = _refused("create_datagram_endpoint", _SOCKETS)
    connect_accepted_socket = _refused("connect_accepted_socket", _SOCKETS)
    start_tls = _refused("start_tls", _SOCKETS)
    sendfile = _refused("sendfile", _SOCKETS)
    sock_recv = _refused("sock_recv", _SOCKETS)
    sock_recv_into = _refused("sock_recv_into", _SOCKETS)
    sock_recvfrom = _refused("sock_recvfrom", _SOCKETS)
    sock_recvfrom_into = _refused("sock_recvfrom_into", _SOCKETS)
    sock_sendall = _refused("sock_sendall", _SOCKETS)
    sock_sendto = _refused("sock_sendto", _SOCKETS)
    sock_connect = _refused("sock_connect", _SOCKETS)
    sock_accept = _refused("sock_accept", _SOCKETS)
    sock_sendfile = _refused("sock_sendfile", _SOCKETS)
    add_reader = _refused("add_reader", _SOCKETS)
    remove_reader = _refused("remove_reader", _SOCKETS)
    add_writer = _refused("add_writer", _SOCKETS)
    remove_writer = _refused("remove_writer", _SOCKETS)

    connect_read_pipe = _refused("connect_read_pipe", _PROCESSES)
    connect_write_pipe = _refused("connect_write_pipe", _PROCESSES)
    subprocess_shell = _refused("subprocess_shell", _PROCESSES)
    subprocess_exec = _refused("subprocess_exec", _PROCESSES)

    add_signal_handler = _refused("add_signal_handler", _SIGNALS)
    remove_signal_handler = _refused("remove_signal_handler", _SIGNALS)

    set_task_factory = _refused("set_task_factory", _FACTORY)

    def foreign_thread(self, name: str) -> NotSimulated:
        """For a call that is fine on the loop's own thread, and came from another."""
        return unsupported_message(f"loop.{name}() from another thread", _THREADS)
