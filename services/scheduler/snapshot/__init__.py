"""The engine's views of nodes and pools, kept current from informers, reports and slots."""
