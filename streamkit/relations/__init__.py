"""What follows from entities, handlers and tables together: writes, cascades, overlaps, matches."""
