"""Aggregates over what a table holds already: listed, built, verified, and their ledgers swept."""
