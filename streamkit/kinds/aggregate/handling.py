"""Make the handler that keeps an aggregate, and the one that counts while a build is under way."""

import ast
import hashlib
import inspect
import textwrap
from dataclasses import replace
from functools import partial
from typing import Any

from streamkit.changes import Kind
from streamkit.core.handler import Handler, Policy
from streamkit.entity import spec_of
from streamkit.errors import DeclarationError
from streamkit.kinds.aggregate.adding import effects_of
from streamkit.kinds.aggregate.aggregate import (
    Aggregate,
    fields_read,
    is_derived,
    source_of,
    stored_as,
)
from streamkit.kinds.aggregate.counting import counting_handler
from streamkit.kinds.aggregate.extremes import extremes_of
from streamkit.kinds.aggregate.soundness import check_aggregate, check_group, check_notes
from streamkit.model.declaration import Declaration


def aggregate_handler(aggregate: type[Aggregate[Any]], policy: Policy) -> Handler:
    """Make the handler that keeps an aggregate.

    Raises:
        DeclarationError: it has no measure, no source, or no group that can be found, or its
            options do not fit.
    """
    declared = Declaration.of(aggregate)
    source = source_of(aggregate)
    check_notes(aggregate, declared)
    if not (aggregate.__measures__ or extremes_of(aggregate)):
        raise DeclarationError(
            f"{declared}: no field has a measure, as in likes: Annotated[int, Count()] = 0"
        )
    if not inspect.ismethod(inspect.unwrap(aggregate.group)):
        raise DeclarationError(f"{declared}: group() is a @classmethod")
    derived = is_derived(aggregate)
    if derived:
        check_group(stored_as(aggregate), source, declared)
    check_aggregate(aggregate, source, declared)

    if aggregate.__options__.approximate:
        policy = replace(policy, on_failure="skip")
    stored = stored_as(aggregate)
    plain = Handler(
        name=aggregate.__name__,
        entity=source,
        kinds=frozenset(Kind),
        run=effects_of(aggregate, derived=derived),
        declared=declared,
        policy=policy,
        commutes=True,
        is_aggregate=True,
        definition=_definition(aggregate),
        writes=frozenset({stored}),
        fields=fields_read(aggregate),
        causes={stored: frozenset({Kind.INSERTED, Kind.MODIFIED})},
    )
    return replace(plain, in_build=partial(counting_handler, aggregate, plain))


def _definition(aggregate: type[Aggregate[Any]]) -> str:
    """Return a digest that changes when the aggregate's value would; comments do not change it."""
    stored = stored_as(aggregate)
    spec = spec_of(stored)
    try:
        text = ast.dump(ast.parse(textwrap.dedent(inspect.getsource(aggregate))))
    except (OSError, TypeError, SyntaxError):
        text = repr([aggregate.group.__func__.__code__.co_code, sorted(aggregate.__measures__)])  # type: ignore[attr-defined]
    templates = (spec.pk.text, spec.sk.text if spec.sk else "")
    # A keyword's value may be inherited, or defined elsewhere: the source text alone is not enough.
    said = (aggregate.__options__.text, repr(aggregate.__until__))
    return hashlib.blake2b(repr((text, templates, *said)).encode(), digest_size=8).hexdigest()
