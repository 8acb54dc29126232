"""A simulated machine: a folder that looks like a host's root, and what lives and happens there.

The real agents run against it: they read its tree, ask its kernel to unload, hold its GPUs open,
and keep its gate. `machine.Machine` is the door:

    there: dict[str, Machine] = {}
    cluster = Cluster(..., occupants=occupants(there))
    there["n1"] = Machine(root / "n1", name="n1", model=…, clock=…, ids=…, random=…)
    there["n1"].join(cluster.fleet)              a kubelet and its Node; they boot together
    host = there["n1"].host(Inline(), comm="sluice-driver", changes=True)
    ...                                          an agent lives on `host`, and through `host.access`
    there["n1"].kill(host)                       it was killed: its holds go, its writes too
    await there["n1"].reboot(kernel=...)         with it all agents of that machine are killed
    assert there["n1"].oddities == ()            what must never happen

On the virtual loop `Inline` does an agent's blocking work; in a process `Threads`. Nothing else
differs. Time that the kernel takes passes inside `host.access.do`, as the world's model says. A
root in memory (/dev/shm) is several times as fast as one on a disk.

Here may live: the tree, the kernel with its modules and processes, the library of the driver, the
containers of driver pods and jobs (for `libs.testing.cluster`), readings. Here must not live: how
long anything takes and how it ends (`rollout.world`), and what our agents do.
"""
