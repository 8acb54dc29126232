"""The upgrade engine: pure functions from views of a fleet to decisions.

`decide` begins every decision. `pool` reconciles the Rollout of a pool with its nodes and grants
starts; `step` decides one node, by `edits`, `in_flight` or `at_rest`; `outcomes` tracks what each
node does or waits for.

No I/O, no clock, no asyncio, no import of `bus` or `kube`: the caller passes the time in and
carries the decision out.
"""
