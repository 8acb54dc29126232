"""Errors of the simulation itself."""


class SimError(Exception):
    """The simulation failed, not the code running in it."""


class NotSimulated(SimError):
    """Code asked for something of the real machine that is not simulated."""


class Deadlock(SimError):
    """Every task waits, and no timer is set."""


class VirtualTimeExceeded(SimError):
    """The next timer lies beyond the run's limit."""


class Livelock(SimError):
    """Steps go on forever without virtual time moving."""


class TaskLeaked(SimError):
    """A task outlived the program that started it."""


class TaskFailed(SimError):
    """A task, future or callback failed, and its error was never retrieved."""


class ServerFailed(SimError):
    """An embedded server did not do what it should."""
