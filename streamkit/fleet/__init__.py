"""The workers of one consumer: who is alive, and which generation of handlers runs."""
