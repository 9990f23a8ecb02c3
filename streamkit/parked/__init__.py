"""Parked changes: found and listed, their payload, and how they leave their lanes."""
