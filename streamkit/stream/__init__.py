"""The shards of a stream: their lineage, their pages, and what may have been lost."""
