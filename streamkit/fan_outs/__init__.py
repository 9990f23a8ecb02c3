"""Fan-outs under way: page by page beside the shards."""
