"""Open the environment of an app's functions, for a mover that does their work.

In: an app and open clients. Out: an environment. On failure: the first error itself, not the
exception group that a task group makes of it.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.aws_lambda.environment import Environment, open_environment
from streamkit.progress.activity import first_error
from streamkit.progress.clock import Clock


@asynccontextmanager
async def environment_with(
    app: App, aws: Aws, clock: Clock, rng: random.Random
) -> AsyncIterator[Environment]:
    """Open an environment with these clients."""
    try:
        async with open_environment(
            app, connect_with=lambda: nullcontext(aws), clock=clock, rng=rng
        ) as environment:
            yield environment
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
