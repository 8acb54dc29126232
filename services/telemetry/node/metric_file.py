"""The list of metrics in a file, which a ConfigMap may replace while the agent runs."""

from pathlib import Path
from typing import Final

from libs.host.machine import Offload
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from libs.runtime.metrics import Metrics
from services.telemetry.metric_list import DEFAULT_LIST, MetricList, parse_list

READ_INTERVAL: Final = 10.0
"""Seconds until a change is noticed; the kubelet itself takes about a minute."""
MAX_BYTES: Final = 1 << 20
"""A ConfigMap has no more."""
_MAX_LOGGED: Final = 20

_log = logger()


class MetricFile:
    """The current list. Without a file, or with one that has no metric, it is the default list."""

    def __init__(self, path: str, *, offload: Offload, clock: Clock, metrics: Metrics) -> None:
        self._path = path
        self._offload = offload
        self._clock = clock
        self._errors = metrics.counter(
            "sluice_telemetry_metric_list_errors",
            "Lines of the list of metrics that cannot be used, and lists that cannot be read;"
            " counted once for each content of the list.",
        )
        self._read: str | None = None
        self._refused: str | None = None
        self.current: MetricList = DEFAULT_LIST

    async def follow(self) -> None:
        """Read the file now and at an interval."""
        while True:
            await self.read()
            await self._clock.sleep(READ_INTERVAL)

    async def read(self) -> None:
        """Read the file once; what cannot be read leaves the list as it is."""
        if not self._path:
            return
        try:
            text = await self._offload.run(self._text)
        except (OSError, ValueError) as error:
            self._refuse_once(str(error))
            return
        self._refused = None
        if text != self._read:
            self._read = text
            self._use(text)

    def _text(self) -> str:
        with Path(self._path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        return data.decode(errors="replace")

    def _use(self, text: str) -> None:
        """Take a list that was read, or the default list where it has no metric.

        An empty page would look like a node without GPUs.
        """
        parsed = parse_list(text)
        for problem in parsed.problems[:_MAX_LOGGED]:
            _log.error(
                "a line of the list of metrics is left out",
                file=self._path,
                line=problem.line,
                reason=problem.reason,
            )
        self._errors.inc(len(parsed.problems))
        if parsed.metrics.metrics:
            self.current = parsed.metrics
            _log.info(
                "the list of metrics is read",
                file=self._path,
                metrics=len(parsed.metrics.metrics),
                labels=len(parsed.metrics.labels),
                left_out=len(parsed.problems),
            )
        else:
            self.current = DEFAULT_LIST
            self._errors.inc()
            _log.error(
                "the list of metrics has no metric, so the default list is used: add a line"
                " `field, type, help`",
                file=self._path,
            )

    def _refuse_once(self, reason: str) -> None:
        """Keep the current list, and say so once until the file can be read."""
        if self._refused == reason:
            return
        self._refused = reason
        self._errors.inc()
        _log.error(
            "the list of metrics cannot be read, so the last one stays in use, at first the"
            " default list: create the ConfigMap that the policy names, with its key",
            file=self._path,
            reason=reason,
        )
