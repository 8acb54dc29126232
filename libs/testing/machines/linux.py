"""The kernel of a simulated machine as one agent asks it: the port of `libs.host.linux`."""

from libs.forecast.world import Ending
from libs.host import modules
from libs.host.holders import holders
from libs.host.linux import InUse, Unloaded, Unloading
from libs.testing.machines.incidents import Never
from libs.testing.machines.seats import Seat
from libs.testing.machines.site import Site


class SimulatedLinux:
    """The kernel decides who is in the way; how the driver itself goes, the world has a say in."""

    def __init__(self, site: Site, seat: Seat) -> None:
        self._site = site
        self._seat = seat

    def unload(self, module: str) -> Unloading:
        """Take a module out, if nobody uses it."""
        kernel = self._site.kernel
        if module != modules.DRIVER or not kernel.idle(module):
            return kernel.unload(module)
        ending = self._asked()
        self._seat.takes(ending.after)
        if ending.after is None or ending.exit_code:
            return InUse(f"delete_module {module}: Resource temporarily unavailable")
        answer = kernel.unload(module)
        if isinstance(answer, Unloaded):
            self._look_for_holders()
        return answer

    def unmount_below(self, path: str) -> str | None:
        """Unmount everything at and below this path of the machine; it always can be."""
        self._site.kernel.unmount_below(path)
        return None

    def _asked(self) -> Ending:
        site = self._site
        return site.model.unload(site.name, site.attempt("unload"))

    def _look_for_holders(self) -> None:
        """As the files show them: the kernel's own count cannot judge itself."""
        for one in holders(self._site.tree):
            said = f"process {one.pid} ({one.comm}) has {', '.join(one.devices)} open"
            self._site.happened(Never.UNDER_A_HOLDER, said)
