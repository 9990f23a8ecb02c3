"""Parked changes: the queues they wait in, their payload, and how they leave a queue."""
