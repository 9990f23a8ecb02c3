"""The workers of one consumer: which are alive, and which generation of handlers runs."""
