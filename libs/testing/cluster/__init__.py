"""What lives on an API server in a cluster beside us: controllers, kubelets, the pods' lives.

Here may live: the DaemonSet controller, workloads, the disruption controller, node lifecycle, the
fake kubelet; each speaks to a server through `libs.kube`, so that the kubelets also serve a real
one. Here must not live: the server itself, and how long things take (`rollout.world`).
"""
