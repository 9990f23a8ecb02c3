"""Versions: sequence numbers become the 63-bit external versions of a search index. Pure.

A sequence number has up to 40 digits, a version 63 bits, so no rule can give every two numbers
different versions. Two things are promised instead:

* Order is never reversed: the larger number has the larger version, or both versions are equal.
  So a newer change is never refused (the index takes equal versions: `external_gte`).
* The numbers that DynamoDB gives out for one item nearly always get different versions. AWS
  documents only their order (within one item) and length (21 to 40 digits). The numbers that it
  has published have two parts: the last 20 digits count the writes of a partition, but may start
  lower in a child shard; the digits before rise by about one in two seconds. The upper part gets
  30 bits (60 years), the lower part 32: exact for the first 2^31 writes of a partition, then its
  26 leading bits.

One case is left: two changes of an item within two seconds in a partition of more than 2^31 writes,
less than about one in 30 million of these writes apart. Then the later arrival wins. That is the
newer change, because the sink sends none that is older than what it has sent (see `newest`). Only
a request that a stopped worker had under way could still arrive after the last one of its
successor. Numbers beyond this layout keep their 54 leading bits.
"""

_LOWER = 10**20
_UPPER_BITS, _LOWER_BITS = 30, 32
_EXACT_BITS = _LOWER_BITS - 1
_LOWER_LEADING, _LEADING = 25, 54
"""These many leading bits are kept, after the first, which is always one."""

VERSION_MAX = 2**63 - 1
"""Versions are Java longs."""


def external_version(sequence: str) -> int:
    """Return the version of a sequence number, from 0 to `VERSION_MAX`.

    Raises:
        ValueError: `sequence` is not a number of at most 40 digits.
    """
    if not (sequence.isascii() and sequence.isdecimal() and len(sequence) <= 40):
        raise ValueError("a sequence number has at most 40 digits")
    upper, lower = divmod(int(sequence), _LOWER)
    if upper < 1 << _UPPER_BITS:
        return upper << _LOWER_BITS | _squeezed(lower)
    return 1 << (_UPPER_BITS + _LOWER_BITS) | _logarithmic(int(sequence), 0, _LEADING)


def _squeezed(lower: int) -> int:
    """Fit a number below 10^20 into 32 bits; the order of two numbers is never reversed."""
    if lower < 1 << _EXACT_BITS:
        return lower
    return 1 << _EXACT_BITS | _logarithmic(lower, _EXACT_BITS + 1, _LOWER_LEADING)


def _logarithmic(number: int, least: int, bits: int) -> int:
    """Return a number's length in bits, above `least`, and then its leading bits, as one number."""
    length = number.bit_length()
    after_first = number - (1 << (length - 1))
    shift = length - 1 - bits
    leading = after_first >> shift if shift >= 0 else after_first << -shift
    return (length - least) << bits | leading
