"""Activity: the running tasks of one shard, so that they can be ended together.

In: coroutine functions, run in tasks of the worker's group or in the caller's task. Out: a call of
`rested` when the last task has ended. On failure: the error is passed to `failed`, which returns
whether it has handled the error. If not, the error goes to the group and ends the worker.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import anyio.abc

from streamkit.errors import LeaseLost

T = TypeVar("T")


@dataclass
class Activity:
    """The tasks of one shard."""

    group: anyio.abc.TaskGroup
    failed: Callable[[Exception], bool]
    rested: Callable[[], None]
    _scopes: set[anyio.CancelScope] = field(default_factory=set)
    _ended: bool = False

    @property
    def busy(self) -> bool:
        """Return whether any task runs."""
        return bool(self._scopes)

    def start(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Begin something in a task of its own; it counts as running from now on."""
        if not self._ended:
            scope = anyio.CancelScope()
            self._scopes.add(scope)
            self.group.start_soon(self._run, scope, work, arguments)

    async def within(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Run something in the caller's task; return None if it was cancelled or has failed."""
        if self._ended:
            return None
        scope = anyio.CancelScope()
        self._scopes.add(scope)
        return await self._run(scope, work, ())

    def cancel(self) -> None:
        """Cancel every task, and let no new one begin."""
        self._ended = True
        for scope in self._scopes:
            scope.cancel()

    async def _run(
        self,
        scope: anyio.CancelScope,
        work: Callable[..., Awaitable[T]],
        arguments: tuple[Any, ...],
    ) -> T | None:
        result: T | None = None
        try:
            with scope:
                if not scope.cancel_called:  # otherwise it would run to its first await
                    result = await work(*arguments)
        except Exception as error:  # `failed` handles it, or it ends the worker
            if not self.failed(error):
                raise
        finally:
            self._scopes.discard(scope)
        if not self._scopes and not self._ended:
            self.rested()
        return result


@asynccontextmanager
async def task_group() -> AsyncIterator[anyio.abc.TaskGroup]:
    """Run tasks in a group; if some fail, raise the first error alone, as if without a group."""
    try:
        async with anyio.create_task_group() as group:
            yield group
    except BaseExceptionGroup as errors:
        error = first_error(errors)
        raise error from error.__cause__


async def each_of(most: int, ones: Iterable[T], work: Callable[[T], Awaitable[object]]) -> None:
    """Do work with each of some things, at most so many at a time."""
    left = iter(ones)

    async def some() -> None:
        for one in left:
            await work(one)

    async with task_group() as group:
        for _ in range(most):
            group.start_soon(some)


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended a task group; a lost lease only if there is no worse error."""
    flat: list[BaseException] = []
    todo: list[BaseException] = [errors]
    while todo:
        error = todo.pop()
        if isinstance(error, BaseExceptionGroup):
            todo += error.exceptions
        else:
            flat.append(error)
    return min(flat, key=lambda error: isinstance(error, LeaseLost))
