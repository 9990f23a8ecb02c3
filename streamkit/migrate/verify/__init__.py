"""Look at items again: what differs, which copies have no source, and which errors are mended."""
