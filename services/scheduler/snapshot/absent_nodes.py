"""Find nodes that have reports or slots on the bus, but no Node."""

from services.scheduler.inputs import Inputs


class AbsentNodes:
    def __init__(self, inputs: Inputs) -> None:
        self._nodes = inputs.informers.nodes
        self._reports = inputs.reports
        self._slot_cache = inputs.slot_cache
        self._clock = inputs.env.clock
        self._since: dict[str, float] = {}
        """When each node was first found to be absent."""

    def find(self) -> set[str]:
        """Return nodes whose deletion was not seen, or whose purge failed."""
        now = self._clock.monotonic()
        on_bus = {*self._reports.nodes(), *self._slot_cache.nodes()}
        cache = self._nodes.cache
        absent = [
            name for name in on_bus if cache.get(name) is None and name not in cache.unreadable
        ]
        self._since = {name: self._since.get(name, now) for name in absent}
        if self._reports.age:
            return set()  # the bus is unreachable
        # The Nodes must have been read since the name was found to be absent.
        read_at = now - self._nodes.age
        return {name for name, since in self._since.items() if since < read_at}
