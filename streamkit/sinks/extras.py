"""Extras: libraries that only some sinks need.

In: the extra that installs a library. Out: nothing. On failure: an error says what to install.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from streamkit.errors import ConfigurationError


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Wrap the import of a library that only an extra installs.

    Raises:
        ConfigurationError: the library is missing; the error names the extra.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f"{error.name or 'a library'} is missing: pip install 'streamkit[{extra}]'"
        ) from error
