"""What makes progress: actions, leased cursors, commits, operations, and the scan of a table."""
