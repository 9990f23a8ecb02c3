"""Parked changes tried again: on their own when they are due, and as a person asks for it."""
