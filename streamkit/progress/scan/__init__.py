"""The scan of a whole table, in leased segments that any number of processes share."""
