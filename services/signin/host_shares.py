"""How many refusals each host is served among the others; what it asks beyond them waits.

Whoever reaches the port may connect without a token, hundreds of times in a second, and each try
costs a signature. Served in the order of arrival, an agent behind them waits for seconds, or for
longer than nats-server does. A host whose clients were refused lately is therefore served after all
others: it is not shut out, because a client with a token may be behind the same address.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from libs.runtime.clock import Clock

BURST: Final = 20.0
"""Refusals of a host at once: its agents after a restart of the API server, say."""
PER_SECOND: Final = 1.0
"""By which the share of a host is renewed."""
HOSTS: Final = 4096
"""Hosts that are remembered: those that were refused last."""


class _Share(msgspec.Struct):
    at: float
    used: float


class HostShares:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shares: OrderedDict[str, _Share] = OrderedDict()

    def refused(self, host: str) -> None:
        """Count a refusal of a client of this host."""
        used = self._used(host)
        self._shares[host] = _Share(self._clock.monotonic(), min(used + 1.0, 2 * BURST))
        self._shares.move_to_end(host)
        if len(self._shares) > HOSTS:
            self._shares.popitem(last=False)

    def is_used_up(self, host: str) -> bool:
        return self._used(host) >= BURST

    def _used(self, host: str) -> float:
        share = self._shares.get(host)
        if share is None:
            return 0.0
        return max(0.0, share.used - PER_SECOND * (self._clock.monotonic() - share.at))
