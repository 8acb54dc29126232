"""What the simulated fleet says when it cannot go on: every error of the library is here."""


class SimError(Exception):
    """The simulation itself failed, not what runs in it."""


class NotSimulated(SimError):
    """Something of the real machine was asked for, where there is none."""


class Deadlock(SimError):
    """Everything waits, and nothing is left that could wake anything."""


class VirtualTimeExceeded(SimError):
    """The run wanted more virtual time than it was given."""


class Livelock(SimError):
    """Step follows step, and virtual time stands still."""


class TaskLeaked(SimError):
    """The program ended, and a task that it started did not."""


class TaskFailed(SimError):
    """A task, future or callback failed, and nobody looked."""


class ServerFailed(SimError):
    """The embedded server did not do what it was told."""
