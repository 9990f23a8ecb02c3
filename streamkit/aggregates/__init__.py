"""List, build and verify aggregates over items that exist already, and delete their ledgers."""
