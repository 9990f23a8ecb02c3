"""Estimate what a fleet costs: prices, a budget before it runs, and what its own counters say."""
