"""List and watch."""
