"""Make a table as it was at a moment, here or beside the one that is in use."""
