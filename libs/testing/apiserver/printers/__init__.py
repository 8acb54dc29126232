"""Tables, as `kubectl get` prints them: nodes, pods, DaemonSets and custom kinds."""
