"""What people want, as one model, and what follows from it for the cluster.

Here may live: the policies' structs, defaults, validation in words, digests, the rendering of
operands as plain data, and the text of CRD rules beside their predicates. Here must not live: I/O,
clocks, or anything about *when* a node moves; that is `libs.rollout`. Pure; imports contracts.
"""
