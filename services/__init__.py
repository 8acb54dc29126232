"""The five services. They communicate over the bus and never import each other."""
