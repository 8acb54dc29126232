"""The views that the engine decides on, kept up to date from caches, reports and slots."""
