"""What decides where a pod may run, and what it loses when it moves: for those who foresee that."""

from typing import Any

from libs.kube.views import Taint, View


class Volume(View, frozen=True, kw_only=True):
    name: str
    empty_dir: dict[str, Any] | None = None


class Toleration(View, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect):
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return (self.key, self.value) == (taint.key, taint.value)
