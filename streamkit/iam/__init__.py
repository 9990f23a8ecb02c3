"""Permissions: the least that each host needs, computed from what an app registers."""
