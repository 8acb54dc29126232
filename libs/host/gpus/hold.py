"""The driver's library, held while it may be: what `quiesce` and `idle` mean to who samples GPUs.

An agent that was told to let go stays up and says so; a driver that comes or goes is no error.
"""

from libs.host.gpus.port import Gpus, Library, Unavailable


class Hold:
    """One agent's hold of the GPUs of its machine. Calls block."""

    def __init__(self, gpus: Gpus) -> None:
        self.gpus = gpus
        self.quiesced = False
        self.why = ""
        """Why the GPUs cannot be asked now; empty if they can."""

    def let_go(self) -> None:
        """Hold nothing from now on."""
        self.quiesced = True
        self.gpus.close()

    def resume(self) -> None:
        """It may be held again."""
        self.quiesced = False

    def take(self) -> Library | None:
        """The library, held from now on; None, and `why` says so, where it cannot be."""
        if self.quiesced:
            self.why = "it was told to let go of the GPUs, while the driver changes"
            return None
        try:
            library = self.gpus.open()
        except Unavailable as error:
            self.lost(error)
            return None
        self.why = ""
        return library

    def lost(self, error: Unavailable) -> None:
        """An answer did not come: whoever is behind the library may be gone."""
        self.why = str(error)
        self.gpus.close()
