"""Our `dataclass` makes what the standard library's makes, as far as anybody can see."""

import copy
import dataclasses
import inspect
import pickle
import sys
from dataclasses import InitVar, field
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

import pytest

from streamkit.model.dataclass import dataclass

T = TypeVar("T")
MAKERS = {"standard": dataclasses.dataclass, "ours": dataclass}
OPTIONS = [
    {"frozen": frozen, "slots": slots, "eq": eq}
    for frozen in (False, True)
    for slots in (False, True)
    for eq in (False, True)
]


def shapes(make, **options):
    """Classes of every shape, made by one maker."""

    @make(**options)
    class Plain:
        """A class."""

        number: int
        text: str = "none"
        many: list = field(default_factory=list)
        seen: ClassVar[int] = 3

    @make(**options)
    class Child(Plain):
        more: int = 4

    @make(**options)
    class Nothing:
        pass

    @make(**options)
    class Own:
        number: int

        def __repr__(self):
            return f"<{self.number}>"

        def __eq__(self, other):
            return isinstance(other, Own)

        def __hash__(self):
            return 7

    @make(**options)
    class EqualByHand:  # noqa: PLW1641 - that is its shape
        number: int

        def __eq__(self, other):
            return isinstance(other, EqualByHand)

    @make(**options)
    class Hidden:
        number: int
        secret: str = field(default="", repr=False)
        note: object = field(default=None, compare=False)
        later: int = field(default=5, init=False)
        made: dict = field(default_factory=dict, init=False)

    @make(**options)
    class Named:
        number: int = field(kw_only=True)
        text: str
        last: int = field(default=2, kw_only=True)

    @make(**options)
    class Begun:
        number: int
        begin: InitVar[int] = 0

        def __post_init__(self, begin):
            object.__setattr__(self, "number", self.number + begin)

    @make(**options)
    class Typed(Generic[T]):
        value: T

    return [Plain, Child, Nothing, Own, EqualByHand, Hidden, Named, Begun, Typed]


CALLS = [
    ((), {}),
    ((1,), {}),
    ((float("nan"),), {}),
    ((1, "text"), {}),
    ((1, 2, [3]), {}),
    ((1, 2, [3], 4), {}),
    (("text",), {"number": 1}),
    (("text",), {"number": 1, "last": 3}),
    ((), {"number": 1, "begin": 2}),
    ((1,), {"unknown": 2}),
]
ATTEMPTS = {
    "repr": repr,
    "hash": lambda one: hash(one) == hash(copy.copy(one)),
    "equal": lambda one: one == copy.copy(one),
    "unequal": lambda one: one == dataclasses.replace(one, **{named(one): object()}),
    "of another class": lambda one: (one == 3, one.__eq__(3)),
    "set": lambda one: setattr(one, named(one), 8) or repr(one),
    "delete": lambda one: delattr(one, named(one)) or vars(one),
    "asdict": lambda one: str(dataclasses.asdict(one)),
    "astuple": lambda one: str(dataclasses.astuple(one)),
    "replace": lambda one: repr(dataclasses.replace(one)),
    "copy": lambda one: repr(copy.copy(one)),
    "deepcopy": lambda one: repr(copy.deepcopy(one)),
    "signature": lambda one: str(inspect.signature(type(one))),
    "annotations": lambda one: str(type(one).__init__.__annotations__),
    "match": lambda one: type(one).__match_args__,
    "has": lambda one: (hasattr(one, "__dict__"), getattr(type(one), "__slots__", None)),
    "hashable": lambda one: type(one).__hash__ is None,
    "frozen": lambda one: type(one).__dataclass_params__.frozen,
}


def named(one):
    return next(f.name for f in dataclasses.fields(one) if f.init)


def told(attempt, *given):
    try:
        return attempt(*given)
    except Exception as error:  # what is compared
        text = "" if isinstance(error, TypeError) else str(error)
        return type(error).__name__, text


def played(make, options):
    """What comes of everything that can be asked of the shapes."""
    found = {}
    for made in shapes(make, **options):
        for number, (arguments, by_name) in enumerate(CALLS):
            one = told(lambda: made(*arguments, **by_name))  # noqa: B023 - runs at once
            if isinstance(one, tuple):
                found[made.__name__, number] = one
                continue
            for name, attempt in ATTEMPTS.items():
                found[made.__name__, number, name] = told(attempt, copy.copy(one))
    return found


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_class_behaves_as_the_standard_librarys(options):
    expected, found = played(MAKERS["standard"], options), played(MAKERS["ours"], options)
    assert {name: found[name] for name in expected} == expected


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True)
class Lazy:
    x: int

    @cached_property
    def double(self):
        return 2 * self.x


@dataclass(frozen=True, slots=True)
class Loop:
    inner: list


def test_frozen_slots_survive_pickling():
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)


def test_a_frozen_class_may_keep_what_it_computes():
    lazy = Lazy(2)
    assert (lazy.double, vars(lazy)) == (4, {"x": 2, "double": 4})


def test_equal_objects_are_one_key_from_the_first_comparison_on():
    assert len({Point(1), Point(1, 0), Point(2)}) == 2
    assert Point(1) != Lazy(1)


def test_an_object_within_itself_can_be_shown():
    loop = Loop([])
    loop.inner.append(loop)
    assert repr(loop) == "Loop(inner=[...])"


def test_other_options_are_the_standard_librarys():
    @dataclass(frozen=True, order=True)
    class Ordered:
        x: int

    assert Ordered(1) < Ordered(2)


@pytest.mark.parametrize("one", [Point(1), Lazy(1)], ids=repr)
def test_a_frozen_object_takes_no_other_attribute(one):
    """With slots, the standard library raises TypeError for want of the right class."""
    with pytest.raises(dataclasses.FrozenInstanceError, match="field 'another'"):
        one.another = 8


def test_a_subclass_without_fields_may_add_attributes():
    class Further(Lazy):
        pass

    further = Further(1)
    further.note = "kept"
    with pytest.raises(dataclasses.FrozenInstanceError, match="field 'x'"):
        further.x = 2
    assert further.note == "kept"


@pytest.mark.skipif(sys.version_info < (3, 13), reason="copy.replace is new in 3.13")
def test_copy_replace_works():
    assert copy.replace(Point(1), y=2) == Point(1, 2)
