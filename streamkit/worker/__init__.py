"""The worker: pipelines of shards, the retries beside them, and what starts and stops them."""
