"""Sinks deliver `Send` effects outside the table; each imports its library when it opens."""
