"""Parked changes: the lanes they wait in, their payload, and how they leave a lane."""
