"""Extras: libraries that only some sinks need.

In: the extra that brings a library. Out: nothing. On failure: an error that says what to install.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from streamkit.errors import ConfigurationError


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Import something inside that only an extra brings.

    Raises:
        ConfigurationError: the library is missing; names the extra.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f"{error.name or 'a library'} is missing: pip install 'streamkit[{extra}]'"
        ) from error
