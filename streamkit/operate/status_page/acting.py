"""Acting: what the forms of the status page do, each as the command of the same name does it.

In: a form that was let in. Out: a sentence about what was done. On failure: the kind of the error,
in that sentence; the page goes on.
"""

from collections.abc import Awaitable, Callable, Mapping

from streamkit.app import App
from streamkit.aws import Aws, AwsError
from streamkit.core.parked.queues import Selection
from streamkit.errors import StreamkitError
from streamkit.observe.redaction import name_of
from streamkit.operate.consumers import pause_consumer, resume_consumer
from streamkit.operate.redrive import redrive

_Act = Callable[[App, Aws, str], Awaitable[str]]


async def _pause(app: App, aws: Aws, _handler: str) -> str:
    await pause_consumer(app, aws)
    return f"{app.name} is paused: it reads nothing until it is resumed"


async def _resume(app: App, aws: Aws, _handler: str) -> str:
    await resume_consumer(app, aws)
    return f"{app.name} continues"


async def _redrive(app: App, aws: Aws, handler: str) -> str:
    reports = await redrive(app, aws, Selection(handler=handler or None))
    done, failed = sum(one.done for one in reports), sum(one.failed for one in reports)
    return f"{done} parked changes of {handler or app.name} are done, {failed} failed again"


ACTS: Mapping[str, _Act] = {"pause": _pause, "resume": _resume, "redrive": _redrive}


async def act(app: App, aws: Aws, what: str, handler: str) -> str:
    """Do what a form asks for, and return what was done as a sentence."""
    try:
        return await ACTS[what](app, aws, handler)
    except (StreamkitError, *AwsError) as error:
        return f"{what} of {app.name} failed: {name_of(error)}"
