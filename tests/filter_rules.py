"""Lambda's rules for filter patterns, as its documentation lists them: what lets a record through.

Fields of a pattern must all hold; the values of an array are alternatives; `$or` joins patterns.
"""

_MISSING = object()


def lets_through(criteria, record):
    """Whether any of the filters lets a record through; no filters let everything through."""
    import json

    patterns = [json.loads(one["Pattern"]) for one in criteria["Filters"]]
    return not patterns or any(_fields(pattern, record) for pattern in patterns)


def _fields(pattern, value):
    for name, rule in pattern.items():
        if name == "$or":
            if not any(_fields(one, value) for one in rule):
                return False
            continue
        found = value.get(name, _MISSING) if isinstance(value, dict) else _MISSING
        if isinstance(rule, dict):
            if not _fields(rule, found):
                return False
        elif not any(_holds(one, found) for one in rule):
            return False
    return True


def _holds(rule, found):
    if not isinstance(rule, dict):
        return found is not _MISSING and type(found) is type(rule) and found == rule
    ((name, wanted),) = rule.items()
    return _RULES[name](wanted, found)


def _prefix(wanted, found):
    return isinstance(found, str) and found.startswith(wanted)


def _exists(wanted, found):
    # It works on leaves only: what is a branch of the event does not exist, in this sense.
    there = found is not _MISSING and not isinstance(found, dict)
    return there == wanted


def _anything_but(wanted, found):
    return found is not _MISSING and found not in wanted


_COMPARE = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _numeric(wanted, found):
    # Attribute values are strings, also those of numbers: such a rule never holds for one.
    if isinstance(found, bool) or not isinstance(found, int | float):
        return False
    pairs = zip(wanted[::2], wanted[1::2], strict=True)
    return all(_COMPARE[sign](found, number) for sign, number in pairs)


_RULES = {
    "prefix": _prefix,
    "exists": _exists,
    "anything-but": _anything_but,
    "numeric": _numeric,
}
