"""Handler list: the handlers of one consumer, each with a name of its own, and their policy."""

from collections.abc import Iterable
from dataclasses import replace

from streamkit.core.handler import Handler, OnFailure, Policy
from streamkit.entity import Entity, spec_of
from streamkit.errors import DeclarationError


class HandlerList:
    """The handlers of one consumer, in the order of their declaration, and its entities.

    Args:
        entities: those without a handler.
        policy: of handlers that do not say otherwise.
    """

    def __init__(self, entities: Iterable[type[Entity]], policy: Policy) -> None:
        self.handlers: list[Handler] = []
        self._entities = list(entities)
        for entity in self._entities:
            if not (isinstance(entity, type) and issubclass(entity, Entity)):
                raise DeclarationError(f"entities={entity!r} is not an entity")
        self._policy = policy

    def add_handler(self, handler: Handler) -> None:
        """Register a handler that was made elsewhere.

        Raises:
            DeclarationError: its name is taken.
        """
        for other in self.handlers:
            if other.name == handler.name:
                what = "another class name" if handler.is_aggregate else "name="
                raise DeclarationError(
                    f"{handler.declared}: a handler named {handler.name!r} exists already, at"
                    f" {other.declared}; give one of them {what}"
                )
        spec_of(handler.entity)
        self.handlers.append(handler)

    def _changed_policy(
        self, timeout: float | None, attempts: int | None, on_failure: OnFailure | None
    ) -> Policy:
        if attempts is not None and attempts < 1:
            raise DeclarationError(f"attempts={attempts}: the first attempt counts, so at least 1")
        default = self._policy
        return replace(
            default,
            timeout_seconds=default.timeout_seconds if timeout is None else timeout,
            attempts=attempts or default.attempts,
            on_failure=on_failure or default.on_failure,
        )
