"""Look at a sample before a migration runs: what changes, what it costs, and what is wrong."""
