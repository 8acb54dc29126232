"""How long jobs ran, as histograms: what plans learn about the jobs that nodes wait for.

Nothing is decided by it. It may be lost, and is then learned again.
"""

from libs.contracts.message import Data, Message
from libs.contracts.numbers import Count


class KindLengths(Data, frozen=True, kw_only=True):
    """The lengths of the jobs of one kind."""

    namespace: str = ""
    owner: str = ""
    """The kind of what controls their pods; with an empty namespace: jobs of other kinds."""
    first: Count = 0
    """The bucket that the first count is of. Bucket n begins at 2^(n/8) seconds."""
    counts: tuple[Count, ...] = ()
    """Ended jobs by bucket, of which the oldest weigh less."""


class JobLengths(Message, frozen=True, kw_only=True):
    """How long the jobs of a pool ran that `waitForCompletion` selects."""

    pool: str
    until: float = 0.0
    """The pods that ended up to then are counted."""
    kinds: tuple[KindLengths, ...] = ()
