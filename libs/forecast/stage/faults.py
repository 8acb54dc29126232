"""What befalls machines, on a stage: every fault is one method.

No person does this: agents die, machines reboot, sources hang. Must not know what anybody makes of
it.
"""

from libs.forecast.stage import nodes, processes, seeing
from libs.forecast.stage.state import State


class Faults:
    """What breaks by itself."""

    def __init__(self, state: State) -> None:
        self._state = state

    def reboot(self, node: str, *, kernel: str = "", variant: str = "") -> None:
        """A machine goes down, and comes back if it can."""
        self._state.tell(f"{node}: reboots")
        nodes.reboot(self._state, node, kernel, variant)

    def power_off(self, node: str) -> None:
        """A machine is dead."""
        if self._state.machines[node].up:
            self._state.tell(f"{node}: is dead")
            nodes.power_off(self._state, node)

    def power_on(self, node: str) -> None:
        """Somebody switches it on again."""
        nodes.power_on(self._state, node, self._state.machines[node].boot)

    def cut_kubelet(self, node: str, seconds: float | None) -> None:
        """Its kubelet loses the API server."""
        self._state.tell(f"{node}: its kubelet is cut off for {seconds} s")
        nodes.cut_off(self._state, node, seconds)

    def join_kubelet(self, node: str) -> None:
        """It has it again."""
        nodes.joined_again(self._state, node, self._state.machines[node].boot)

    def cut_agents(self, node: str) -> None:
        """Its agents lose the bus."""
        self._state.tell(f"{node}: its agents are cut off")
        processes.cut_off(self._state, self._state.machines[node])

    def join_agents(self, node: str) -> None:
        """They have it again."""
        processes.joined_again(self._state, self._state.machines[node])

    def agent_dies(self, node: str, part: str, *, hung: bool = False) -> None:
        """For good, or until it is started."""
        machine = self._state.machines[node]
        self._state.tell(f"{node}: {part} {'hangs' if hung else 'dies'}")
        processes.dies(self._state, machine, machine.agents[part], hung=hung)

    def agent_restarts(self, node: str, part: str, *, forgets: bool = False) -> None:
        """It starts again, perhaps without its journal."""
        machine = self._state.machines[node]
        without = " without its journal" if forgets else ""
        self._state.tell(f"{node}: {part} starts again{without}")
        processes.restart(self._state, machine, machine.agents[part], forgets=forgets)

    def deaf(self, node: str, *parts: str) -> None:
        """These components miss their pokes."""
        self._state.deaf[node] = parts

    def bus(self, up: bool) -> None:
        """NATS is away, or back."""
        processes.bus(self._state, up)

    def hold(self, part: str) -> None:
        """A part of all views stands still: `seeing` has their names."""
        self._state.tell(f"what is seen of {part} stands still")
        seeing.hold(self._state, part)

    def show(self, part: str) -> None:
        """It is current again."""
        if part in self._state.blind:
            self._state.tell(f"what is seen of {part} is current again")
        seeing.show(self._state, part)

    def foreign_operator(self, name: str) -> None:
        """The GPU Operator is at work here too; or not any more."""
        if name == self._state.foreign_operator:
            return
        self._state.tell(f"the GPU Operator {'is at work: ' + name if name else 'is gone'}")
        self._state.foreign_operator = name
        for key in self._state.pools:
            self._state.touch_pool(key)

    def quiet(self, source: str) -> None:
        """A source says nothing any more until it is asked."""
        seeing.quiet(self._state, source)
