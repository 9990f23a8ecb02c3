"""Lifespans: what an app opens once for a process, and its handlers ask for by type."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from streamkit.errors import DeclarationError
from streamkit.model.declaration import Declaration

Lifespan = Callable[[], AsyncIterator[Any]]
"""An async generator that yields the resources, one or a tuple, and closes them afterwards."""


def check_lifespan(function: Callable[..., Any]) -> None:
    """Raise `DeclarationError` for a function that is no generator, or not an async one."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise DeclarationError(
            f"{Declaration.of(function)}: a lifespan is an async def that yields once"
        )


@asynccontextmanager
async def open_lifespan(lifespan: Lifespan | None) -> AsyncIterator[tuple[Any, ...]]:
    """Open the resources of a lifespan, as a tuple; `()` for none."""
    if lifespan is None:
        yield ()
        return
    async with asynccontextmanager(lifespan)() as resources:
        yield resources if isinstance(resources, tuple) else (resources,)
