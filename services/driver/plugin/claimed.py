"""The GPUs that pods have by claims, from before the node got the device plugin.

The kubelet would give such a GPU a second time. Claims are prepared by another agent, which is not
on the node while this one is: they only become fewer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from libs.contracts.facts import Gpu
from libs.host.podresources.assignments import DeviceList, pods_by_gpu
from libs.host.podresources.client import KubeletUnavailable

ANSWERS_WITHOUT_CLAIMS: Final = 30
"""Answers in a row without a claim after which there are none: a kubelet that has just started may
not know its pods yet.
"""


class ClaimedGpus:
    """Asks the kubelet until no pod has a GPU by a claim. Calls block."""

    def __init__(self, list_uses: Callable[[], DeviceList] | None) -> None:
        """None: there are no claims."""
        self._list_uses = list_uses
        self.problem = "" if list_uses is None else "it is not known yet which GPUs pods have"
        """Why it is not known which GPUs are claimed; empty if it is."""
        self._without = 0
        """Answers in a row without a claim."""
        self.reasons: Mapping[str, str] = {}
        """Why GPUs are not offered, by UUID."""

    def refresh(self, gpus: Sequence[Gpu]) -> None:
        """Ask, unless the last answer has settled it; without an answer, keep what is known."""
        if self._list_uses is None:
            return
        try:
            uses = [use for use in self._list_uses().uses if use.claimed]
        except KubeletUnavailable as error:
            self.problem = self.problem and f"which GPUs pods have is unknown: {error}"
            return
        self.problem = ""
        self.reasons = {
            uuid: f"the pod {pods[0].namespace}/{pods[0].pod} has it by a claim"
            for (uuid, _), pods in pods_by_gpu(uses, gpus).items()
        }
        self._without = 0 if uses else self._without + 1
        if self._without == ANSWERS_WITHOUT_CLAIMS:
            self._list_uses = None
