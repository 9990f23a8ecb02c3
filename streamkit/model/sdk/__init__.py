"""The SDK: its sessions and connections, and the short way of its frequent calls."""
