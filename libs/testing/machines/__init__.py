"""A simulated machine: a folder like a host's root, with a kernel, processes and GPUs behind it.

The real agents run against it: they read its files, unload its modules, open its GPUs and keep its
gate. `SimulatedMachine` is the entry point:

machine = SimulatedMachine(root / "n1", name="n1", model=..., env=...)
machine.join(cluster.fleet)                  a kubelet and its Node; they reboot together
host = machine.host(InlineOffload(), comm="sluice-driver", changes=True)
machine.kill(host)                           the agent dies: its open devices and writes are lost
await machine.reboot(kernel=...)             kills all agents of the machine
assert machine.incidents == ()               incidents must never happen

Agents pass `InlineOffload` on the virtual loop and a threaded one in a process. The time of kernel
calls passes inside `host.offload.do`; the world's model gives it. A root in memory (/dev/shm) is
several times as fast as one on a disk.
"""
