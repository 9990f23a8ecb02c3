"""The parts of a worker: the pipelines of its shards, its watchdog, its preflight, its lag."""
