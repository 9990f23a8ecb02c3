"""DynamoDB's numbers: decimal, 38 significant digits, magnitude 1E-130 to 9.99...E+125.

A number travels as a string. `canonical_number` returns the string that DynamoDB would return for
it (no exponent, no leading or trailing zeros), so that equal numbers are equal strings.
Arithmetic is exact within 38 digits and refuses results that do not fit, as the service does.
"""

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache

from streamkit.local.errors import validation

DIGITS = 38
_GREATEST_EXPONENT = 125
_SMALLEST_EXPONENT = -130
_FAR = 99_999
_PLAIN = re.compile(r"0|-?[1-9][0-9]{0,37}").fullmatch
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?0*[0-9]{1,9})?").fullmatch
# Wide enough that a sum of any two valid numbers is exact before its digits are counted.
_EXACT = Context(prec=400, rounding=ROUND_HALF_EVEN, Emax=999_999, Emin=-999_999)


def canonical_number(text: str) -> str:
    """Return the canonical string of a number; raise `ApiError` when it is not a valid number."""
    if _PLAIN(text):
        return text
    return _canonical(text)


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    if not _NUMBER(text):
        suffix = f": {text}" if text else ""
        raise validation(f"The parameter cannot be converted to a numeric value{suffix}")
    mantissa, _, exponent = text.lower().partition("e")
    shift = int(exponent or 0)
    if abs(shift) > _FAR:
        # Decimal itself cannot hold it: the number is too large or too small, unless it is zero.
        shift = 0 if not mantissa.strip("+-0.") else (_FAR if shift > 0 else -_FAR)
    return plain(Decimal(f"{mantissa}e{shift}"))


def plain(number: Decimal) -> str:
    """Return a finite decimal in canonical form; raise `ApiError` when it does not fit."""
    sign, digits, scale = number.as_tuple()
    exponent = int(scale)
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    if not stripped:
        return "0"
    exponent += len(text) - len(stripped)
    magnitude = exponent + len(stripped) - 1
    if magnitude > _GREATEST_EXPONENT:
        raise validation(
            "Number overflow. Attempting to store a number with magnitude larger than "
            "supported range"
        )
    if magnitude < _SMALLEST_EXPONENT:
        raise validation(
            "Number underflow. Attempting to store a number with magnitude smaller than "
            "supported range"
        )
    if len(stripped) > DIGITS:
        raise validation("Attempting to store more than 38 significant digits in a Number")
    return ("-" if sign else "") + _place_point(stripped, exponent)


def _place_point(digits: str, exponent: int) -> str:
    if exponent >= 0:
        return digits + "0" * exponent
    point = len(digits) + exponent
    if point > 0:
        return f"{digits[:point]}.{digits[point:]}"
    return f"0.{'0' * -point}{digits}"


def add_numbers(left: str, right: str) -> str:
    """Return the canonical sum of two numbers."""
    if left.isdigit() and right.isdigit() and len(left) < DIGITS and len(right) < DIGITS:
        return str(int(left) + int(right))  # a count
    return plain(_EXACT.add(Decimal(left), Decimal(right)))


def subtract_numbers(left: str, right: str) -> str:
    """Return the canonical difference of two numbers."""
    return plain(_EXACT.subtract(Decimal(left), Decimal(right)))
