"""KSUIDs: ids of 27 letters and digits that sort by the second they were made in.

Four bytes of time, sixteen of anything, in base 62. `derive` makes an id from an id: the same
second, and the same rest each time it is asked, so that what is made twice has one name.
"""

from datetime import datetime
from hashlib import blake2b

_EPOCH = 1_400_000_000  # the format counts from May 2014
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH = 27
_PAYLOAD_BITS = 128


def ksuid(moment: datetime, payload: int) -> str:
    """Make an id of a moment and 128 bits."""
    return _text((int(moment.timestamp()) - _EPOCH) << _PAYLOAD_BITS | payload)


def derive(source: str, *names: str) -> str:
    """Make the id that belongs to `source` and these names; it sorts by the source's second.

    Raises:
        ValueError: `source` is not a KSUID.
    """
    if len(source) != _LENGTH:
        raise ValueError("not a KSUID: it has 27 characters")
    number = 0
    for digit in source:
        number = number * len(_DIGITS) + _DIGITS.index(digit)
    payload = blake2b("\0".join((source, *names)).encode(), digest_size=16).digest()
    seconds = number >> _PAYLOAD_BITS
    return _text(seconds << _PAYLOAD_BITS | int.from_bytes(payload))


def _text(number: int) -> str:
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
