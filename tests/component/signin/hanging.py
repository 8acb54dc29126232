"""The program of sign-in, whose event loop hangs at SIGUSR1."""

import runpy
import signal
import threading


def hang(_number: int, _frame: object) -> None:
    threading.Event().wait()


signal.signal(signal.SIGUSR1, hang)
runpy.run_module("services.signin", run_name="__main__")
