"""The GPUs of a machine, as the driver's library NVML describes them.

An open library keeps the driver in the kernel, so an agent closes it to quiesce. A GPU that does
not answer is one item of a result; it does not fail the call.

`port` is the interface, with the implementations `memory` (simulated) and `nvml` (real machines).
The latter asks a process of its own: `child`, `reading`, `measuring` and `dividing` run there and
import pynvml. `clean` and `mig` make a `Gpu` of facts of what they read, which is what the process
answers, and what agents report. `process` and `session` are the agent's side, and `protocol` is
what they say to each other. `readings` makes samples; `errors` and `xids` count XIDs.
`division` is how a GPU is divided by MIG, which the driver agent alone changes.
"""
