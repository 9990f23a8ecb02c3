"""Fixtures of every test: the harness that users have, too.

Generated examples are the same in each run: what fails, fails for everybody.
"""

from hypothesis import settings

pytest_plugins = ["streamkit.testing.plugin"]

settings.register_profile("repeated", derandomize=True)
settings.load_profile("repeated")
