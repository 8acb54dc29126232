"""What a cluster does about its namespaces: furnished for pods while they last, emptied to end."""
