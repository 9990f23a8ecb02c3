"""Fan-outs that are under way: page by page, beside the shards."""
