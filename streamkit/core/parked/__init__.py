"""Parked changes: their queues in the table, and how they leave them."""
