"""A simulated cluster around an API server: controllers, a pod scheduler and fake kubelets.

Each part talks to the server through `libs.kube`, so the kubelets also serve a real server.
Durations come from the world's model (`libs.forecast.world`).
"""
