"""Faults of machines, agents and sources, each as one method."""

from libs.forecast.stage import agent_processes, nodes, views
from libs.forecast.stage.state import StageState


class StageFaults:
    def __init__(self, state: StageState) -> None:
        self._state = state

    def reboot(self, node: str, *, kernel: str = "", variant: str = "") -> None:
        """Shut the machine down; it comes back if the world lets it."""
        self._state.log(f"{node}: reboots")
        nodes.reboot(self._state, node, kernel, variant)

    def power_off(self, node: str) -> None:
        if self._state.machines[node].up:
            self._state.log(f"{node}: is dead")
            nodes.power_off(self._state, node)

    def power_on(self, node: str) -> None:
        nodes.power_on(self._state, node, self._state.machines[node].boot)

    def disconnect_kubelet(self, node: str, seconds: float | None) -> None:
        self._state.log(f"{node}: its kubelet is cut off for {seconds} s")
        nodes.disconnect_kubelet(self._state, node, seconds)

    def reconnect_kubelet(self, node: str) -> None:
        nodes.reconnect_kubelet(self._state, node, self._state.machines[node].boot)

    def disconnect_agents(self, node: str) -> None:
        self._state.log(f"{node}: its agents are cut off")
        agent_processes.disconnect_agents(self._state, self._state.machines[node])

    def reconnect_agents(self, node: str) -> None:
        agent_processes.reconnect_agents(self._state, self._state.machines[node])

    def stop_agent(self, node: str, part: str, *, hung: bool = False) -> None:
        """Stop the agent until it is restarted."""
        machine = self._state.machines[node]
        self._state.log(f"{node}: {part} {'hangs' if hung else 'dies'}")
        agent_processes.stop_agent(self._state, machine, machine.agents[part], hung=hung)

    def restart_agent(self, node: str, part: str, *, loses_journal: bool = False) -> None:
        machine = self._state.machines[node]
        without = " without its journal" if loses_journal else ""
        self._state.log(f"{node}: {part} starts again{without}")
        agent_processes.restart_agent(
            self._state, machine, machine.agents[part], loses_journal=loses_journal
        )

    def miss_pokes(self, node: str, *parts: str) -> None:
        """Let these components miss their pokes."""
        self._state.missed_pokes[node] = parts

    def set_bus_up(self, up: bool) -> None:
        agent_processes.set_bus_up(self._state, up)

    def freeze(self, part: str) -> None:
        """Freeze a part of all views; `views` has their names."""
        self._state.log(f"what is seen of {part} stands still")
        views.freeze(self._state, part)

    def unfreeze(self, part: str) -> None:
        if part in self._state.frozen:
            self._state.log(f"what is seen of {part} is current again")
        views.unfreeze(self._state, part)

    def foreign_operator(self, name: str) -> None:
        """Set the name of a GPU Operator that runs here too; empty: none."""
        if name == self._state.foreign_operator:
            return
        self._state.log(f"the GPU Operator {'is at work: ' + name if name else 'is gone'}")
        self._state.foreign_operator = name
        for key in self._state.pools:
            self._state.touch_pool(key)

    def mute_source(self, source: str) -> None:
        """Make a source current but silent until it is probed."""
        views.mute(self._state, source)
