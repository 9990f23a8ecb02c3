"""Parked changes are tried again: automatically when they are due, and by hand."""
