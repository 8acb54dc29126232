"""A kubelet that answers the validator with what a test sets."""

from libs.host.deviceplugin.port import Offers
from libs.host.podresources.allocatable import Allocatable
from libs.host.podresources.client import KubeletUnavailable


class Kubelet:
    """An answer that is a text is the reason why there is none."""

    problem = ""

    def __init__(self, answer: Allocatable | str = "no socket") -> None:
        self.answer = answer
        self.questions = 0

    async def offer(self, offers: Offers) -> None:
        raise NotImplementedError

    def allocatable(self) -> Allocatable:
        self.questions += 1
        if isinstance(self.answer, str):
            raise KubeletUnavailable(self.answer)
        return self.answer
