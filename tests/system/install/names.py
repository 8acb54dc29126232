"""A DNS server for real nodes, which have none: it answers with one address for one name.

Run as a program of its own in the network of the nodes: `names.py ADDRESS NAME`.
"""

import socket
import sys

_A, _INTERNET = 1, 1
_ANSWER, _NO_SUCH_NAME = 0x8580, 0x8583
_HEAD, _POINTER = 12, 0xC00C
_SECONDS = 5


def answer(query: bytes, *, name: str, address: str) -> bytes:
    """Return the answer to a query of one question."""
    labels: list[str] = []
    at = _HEAD
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode(errors="replace"))
        at += 1 + length
    question = query[_HEAD : at + 5]
    is_known = ".".join(labels).lower() == name
    found = is_known and int.from_bytes(question[-4:-2], "big") == _A
    flags = _ANSWER if is_known else _NO_SUCH_NAME
    counts = b"".join(count.to_bytes(2, "big") for count in (1, int(found), 0, 0))
    record = (
        _POINTER.to_bytes(2, "big")
        + _A.to_bytes(2, "big")
        + _INTERNET.to_bytes(2, "big")
        + _SECONDS.to_bytes(4, "big")
        + (4).to_bytes(2, "big")
        + socket.inet_aton(address)
    )
    return query[:2] + flags.to_bytes(2, "big") + counts + question + (record if found else b"")


def main() -> None:
    """Serve until the process is ended."""
    address, name = sys.argv[1:]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        sys.stderr.write("names are served\n")
        sys.stderr.flush()
        while True:
            query, client = server.recvfrom(512)
            try:
                server.sendto(answer(query, name=name, address=address), client)
            except IndexError:  # not a query
                continue


if __name__ == "__main__":
    main()
