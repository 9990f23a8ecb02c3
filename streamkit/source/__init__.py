"""Where changes come from: the shards of a stream, their lineage and their pages."""
