"""Fixtures of every test: the harness that users have, too."""

pytest_plugins = ["streamkit.testing.plugin"]
