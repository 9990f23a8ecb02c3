"""Compute the least permissions that each host needs, from what an app registers."""
