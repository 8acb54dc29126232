"""Controllers of namespaces: default objects, and deletion of the contents."""
