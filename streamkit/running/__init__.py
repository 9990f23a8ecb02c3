"""What a worker is made of: the pipelines of its shards, its watchdog, its preflight, its lag."""
