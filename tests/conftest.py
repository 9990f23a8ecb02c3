"""Fixtures of every test: the harness that users have, too.

Generated examples are the same in each run: what fails, fails for everybody.
"""

import gc
import os

import pytest
from hypothesis import settings

from tests.passed import LONG, note_passed

pytest_plugins = ["streamkit.testing.plugin"]

settings.register_profile("repeated", derandomize=True)
settings.load_profile("repeated")

# Python looks for cyclic garbage after every 700 new objects: a tenth of the time of all tests.
gc.set_threshold(50_000, 20, 20)


def pytest_collection_finish():
    """Leave out of the search for garbage what lasts as long as the process: modules and tests."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session, exitstatus):
    """Remember the sources of a `make test` that is green; processes of a parallel run do not."""
    options, config = session.config.option, session.config
    left_out = set(options.deselect or ()) - set(LONG)
    chosen = options.keyword or options.markexpr or left_out
    whole = config.args_source is config.ArgsSource.TESTPATHS and not chosen
    if whole and exitstatus == 0 and not hasattr(config, "workerinput"):
        note_passed()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more than there are cores: some tests wait for processes and for time to pass."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else None
