"""Scans of a whole table, in segments: leased and shared by processes, or read by one process."""
