"""Aggregates: what is declared, how changes count, and rebuilds, resets and verifications."""
