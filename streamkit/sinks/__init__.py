"""Sinks: where `Send` effects go, outside the table; each imports its library when it opens."""
