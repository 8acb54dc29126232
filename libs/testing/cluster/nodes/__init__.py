"""Controllers of Nodes: health, taints, and removal of pods; `health` decides."""
