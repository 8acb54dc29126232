"""The first process of the guest: carries out the calls of tests, one after the other.

`python -m libs.testing.guest.inside`
"""

import os
import sys
import traceback
import tty
from typing import BinaryIO, Final

from libs.testing.guest import system_calls
from libs.testing.guest.protocol import READY, Call, Raised, Returned, decode, encode
from libs.testing.guest.system_calls import MS_REC, MS_SHARED

PORT: Final = "/dev/ttyS1"


def main() -> None:
    system_calls.mount("", "/", "", MS_SHARED | MS_REC)  # as init systems do
    # The console is the standard output, where the test finds what goes wrong here.
    with open(PORT, "rb+", buffering=0) as port:
        tty.setraw(port.fileno())
        serve(port)


def serve(port: BinaryIO) -> None:
    lines = os.fdopen(os.dup(port.fileno()), "rb")
    _send(port, READY)
    for line in lines:
        _send(port, encode(_answer(decode(line))))


def _answer(call: Call) -> Returned | Raised:
    try:
        return Returned(call.function(*call.args, **call.kwargs))
    except Exception:  # noqa: BLE001  (the test raises it)
        return Raised(traceback.format_exc())


def _send(port: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[port.write(view) :]


if __name__ == "__main__":
    sys.exit(main())
