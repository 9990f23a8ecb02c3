"""Whatever the image and the model, ours is what boto3's deserialiser and pydantic would give.

The reference is the usual way: `TypeDeserializer`, numbers and binary made plain, and
`model_validate`. Both must give equal values of equal classes, or both must refuse.
"""

import base64
import functools
import json
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import UnionType
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin
from uuid import UUID

import pytest
from boto3.dynamodb.types import Binary, TypeDeserializer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    AnyUrl,
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    RootModel,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)
from typing_extensions import TypeAliasType

from streamkit.entity import Entity
from streamkit.errors import DecodeError
from streamkit.model.epoch import EpochSeconds
from streamkit.model.schema import TableSchema
from streamkit.stream.decode import ImageDecoder

SCHEMA = TableSchema("t", "PK", "SK", "S", "S", {}, type_attribute="type")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Word(StrEnum):
    A = "a"
    YES = "true"


class Level(IntEnum):
    ONE = 1
    TWO = 2


class Mixed(Enum):
    TEXT = "a"
    NUMBER = 1


class Point(BaseModel):
    x: int
    y: Decimal = Decimal(0)
    tags: set[str] = set()


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Names(RootModel[list[str]]):
    pass


Brand = NewType("Brand", str)


def note_class(value: Any) -> Any:
    """Shows what class of value a validator was given."""
    if isinstance(value, set):
        return f"set:{sorted(map(note_class, value))}"
    if isinstance(value, dict):
        return f"dict:{ {key: note_class(inner) for key, inner in value.items()} }"
    if isinstance(value, list):
        return f"list:{[note_class(inner) for inner in value]}"
    return f"{type(value).__name__}:{value!r}"


def forgive(value: Any, handler: Callable[[Any], Any]) -> Any:
    try:
        return handler(value)
    except ValidationError:
        return handler("0")


class Scalars(Entity, pk="X"):
    a: str
    b: int
    c: Decimal
    d: float
    e: bool


class Moments(Entity, pk="X"):
    a: datetime
    b: date = date(2024, 1, 1)
    c: time | None = None
    d: timedelta | None = None
    e: EpochSeconds | None = None


class Optionals(Entity, pk="X"):
    a: str | None
    b: int | None = None
    c: Decimal = Decimal("1.5")
    d: bool | None = True
    e: bytes | None = None


class Aliases(Entity, pk="X"):
    x: int = Field(alias="a")
    y: str = Field(default="none", alias="b")
    c: int = Field(default=0, validation_alias=AliasChoices("c", "d"), serialization_alias="c")
    z: Any = Field(default=None, validation_alias=AliasPath("e", 0), exclude=True)
    a: str = "own"

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Skips the check of aliases: this model only reads."""


class Swapped(Entity, pk="X"):
    a: int = Field(default=1, alias="b")
    b: str = Field(default="x", alias="a")


class ByAliasOnly(Entity, pk="X", populate_by_name=False):
    x: int = Field(alias="a")
    y: str = Field(default="none", alias="b")
    z: str | None = Field(default=None, alias="x")


class Collections(Entity, pk="X"):
    a: list[str]
    b: dict[str, str] = {}
    c: set[str]
    d: frozenset[int]
    e: tuple[Decimal, ...] = ()


class Deeper(Entity, pk="X"):
    a: set[bytes]
    b: dict[str, int] = {}
    c: list[list[str]] = []
    d: set[Color]
    e: list[int] = []


class Nested(Entity, pk="X"):
    a: Point | None
    b: list[Point] = []
    c: dict[str, Point] = {}
    d: Cat | Dog | None = None
    e: Names | None = None


class Discriminated(Entity, pk="X"):
    a: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    b: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = []
    c: tuple[int, str] | None = None


class Recursive(Entity, pk="X"):
    a: str
    b: "Recursive | None" = None
    c: list["Recursive"] = []


class Unions(Entity, pk="X"):
    a: int | str
    b: str | int | None = None
    c: Decimal | list[str] = Decimal(0)
    d: bool | int = False
    e: datetime | str | None = None


class Choices(Entity, pk="X"):
    a: Literal["a", "true"]
    b: Literal[1, 2] | None = None
    c: Color | None = None
    d: Level | Word | None = None
    e: Mixed | None = None


class Chosen(Entity, pk="X"):
    a: Word
    b: Level = Level.ONE
    c: Literal["a", 1] | None = None
    d: UUID | None = None
    e: Brand = Brand("none")


class Constrained(Entity, pk="X", str_strip_whitespace=True, coerce_numbers_to_str=True):
    a: Annotated[str, StringConstraints(min_length=1, max_length=5)]
    b: Annotated[int, Field(ge=0, lt=100)] = 0
    c: Annotated[Decimal, Field(max_digits=4, decimal_places=1)] = Decimal(0)
    d: Annotated[set[str], Field(max_length=2)]
    e: AnyUrl | None = None


class Strict(Entity, pk="X", strict=True):
    a: str
    b: int = 0
    c: datetime | None = None
    d: set[int]
    e: float | None = None


class Validated(Entity, pk="X"):
    a: Annotated[str, BeforeValidator(note_class)]
    b: Annotated[str, PlainValidator(note_class)] = ""
    c: Annotated[int, WrapValidator(forgive)] = 0
    d: Annotated[int, AfterValidator(lambda n: n + 1)] = 0
    e: Annotated[Any, BeforeValidator(note_class)] = None


class Shown(Entity, pk="X"):
    a: Annotated[set[int], PlainValidator(note_class)]
    b: Annotated[list[Decimal], PlainValidator(note_class)]
    c: Annotated[dict[str, float], PlainValidator(note_class)]
    d: Annotated[Decimal | None, PlainValidator(note_class)]
    e: Annotated[int, PlainValidator(note_class)]


class Informed(Entity, pk="X", validate_default=True):
    a: int
    b: int = 5
    c: list[int] = Field(default_factory=lambda data: [data.get("a", 0)])
    d: str | None = None

    @field_validator("b", mode="after")
    @classmethod
    def add(cls, value: int, info: ValidationInfo) -> int:
        return value + int(info.data.get("a", 0))

    @field_validator("d", mode="before")
    @classmethod
    def show(cls, value: Any, info: ValidationInfo) -> Any:
        return f"{info.mode}:{info.field_name}:{note_class(value)}"


def add_a(value: int, info: ValidationInfo) -> int:
    return value + int(info.data.get("a", 0))


Shifted = TypeAliasType("Shifted", Annotated[int, AfterValidator(add_a)])
Tree = TypeAliasType("Tree", "list[Tree] | Shifted")  # type: ignore[misc]
Plain = TypeAliasType("Plain", "list[Plain] | int")  # type: ignore[misc]


class Named(Entity, pk="X"):
    """Types with a name that several fields have are definitions of the schema."""

    a: int
    b: Shifted = 0
    c: Shifted | None = None
    d: Tree = 0
    e: Plain = 0


class WholeAfter(Entity, pk="X"):
    a: int = 0
    b: int = 0

    @model_validator(mode="after")
    def ordered(self) -> "WholeAfter":
        if self.a > self.b:
            raise ValueError("not in order")
        return self


class WholeBefore(Entity, pk="X"):
    a: int = 0
    b: Any = None

    @model_validator(mode="before")
    @classmethod
    def count(cls, values: Any) -> Any:
        return values | {"b": sorted(values)}


class WholeWrap(Entity, pk="X"):
    a: int = 0
    b: int = 0

    @model_validator(mode="wrap")
    @classmethod
    def forgiving(cls, values: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(values)
        except ValidationError:
            return handler({"a": len(values)})


class Forbidding(Entity, pk="X", extra="forbid"):
    a: int = 0
    b: str | None = None
    c: str | None = Field(default=None, alias="type")


class Keeping(Entity, pk="X", extra="allow"):
    a: int = 0


class Hooked(Entity, pk="X"):
    a: int = 0
    _seen: str = ""

    def model_post_init(self, _: Any) -> None:
        self._seen = repr(self.a)


class OwnInit(Entity, pk="X"):
    a: int = 0
    b: str = ""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values | {"b": ",".join(sorted(values))})


class OneField(Entity, pk="X"):
    a: str


class NoField(Entity, pk="X"):
    pass


MODELS: list[type[Entity]] = [
    Scalars, Moments, Optionals, Aliases, Swapped, ByAliasOnly, Collections, Deeper, Nested,
    Discriminated, Recursive, Unions, Choices, Chosen, Constrained, Strict, Validated, Shown, Informed,
    Named, WholeAfter, WholeBefore, WholeWrap, Forbidding, Keeping, Hooked, OwnInit, OneField, NoField,
]  # fmt: skip


TEXTS = [
    "", "a", "true", " x ", "red", "12", "1.5", "-0", "1714521600", "2024-05-01", "cat", "dog",
    "2024-05-01T10:11:12.5Z", "2024-05-01T10:11:12+02:00", "10:11:12", "P1DT2H", "blue",
    "00000000-0000-0000-0000-000000000005", "https://example.com/a", 'é\u2028\U0001f600"\\\n',
]  # fmt: skip
NUMBERS = [
    "0", "1", "2", "-7", "12", "99", "1.5", "-0.25", "12.0", "100", "1E2", "1.50", "1E-7",
    "1714521600", "1714521600.5", "0.1", "9" * 38, "0." + "1" * 37, "-" + "9" * 19 + "." + "9" * 19,
    "123456789012345678901234567890", "9.99E+60",
]  # fmt: skip

texts = st.sampled_from(TEXTS) | st.text(max_size=5)
numbers = (
    st.sampled_from(NUMBERS)
    | st.integers(-(10**20), 10**20).map(str)
    | st.decimals(-(10**9), 10**9, places=4).map(str)
)
binaries = st.binary(max_size=4)


def unique(members: st.SearchStrategy[Any], key: Callable[[Any], Any]) -> st.SearchStrategy[Any]:
    return st.lists(members, min_size=1, max_size=3, unique_by=key)


scalars = (
    texts.map(lambda text: {"S": text})
    | numbers.map(lambda number: {"N": number})
    | st.booleans().map(lambda value: {"BOOL": value})
    | st.just({"NULL": True})
    | binaries.map(lambda value: {"B": value})
    | unique(texts, str).map(lambda members: {"SS": members})
    | unique(numbers, Decimal).map(lambda members: {"NS": members})
    | unique(binaries, bytes).map(lambda members: {"BS": members})
)
names = st.sampled_from(["a", "b", "x", "y", "kind", "lives", "name", "tags"])
attributes = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda members: {"L": members})
        | st.dictionaries(names, inner, max_size=3).map(lambda content: {"M": content})
        | st.lists(texts, max_size=3).map(lambda members: {"L": [{"S": m} for m in members]})
        | st.dictionaries(names, numbers, max_size=3).map(
            lambda content: {"M": {key: {"N": number} for key, number in content.items()}}
        )
        | st.fixed_dictionaries({"x": numbers.map(lambda n: {"N": n})}).map(lambda c: {"M": c})
        | st.sampled_from(
            [
                {"M": {"kind": {"S": "cat"}}},
                {"M": {"kind": {"S": "dog"}, "name": {"S": "Rex"}, "extra": {"N": "1"}}},
            ]
        )
    ),
    max_leaves=5,
)
unknown = st.dictionaries(st.sampled_from(["a", "b", "d", "x", "more"]), attributes)
MOMENTS = ["2024-05-01T10:11:12.5Z", "2024-05-01T10:11:12+02:00", "1714521600"]
FITTING: dict[Any, st.SearchStrategy[Any]] = {
    str: texts.map(lambda text: {"S": text}),
    Any: attributes,
    int: st.integers(-(10**20), 10**20).map(lambda n: {"N": str(n)}),
    Decimal: numbers.map(lambda number: {"N": number}),
    float: numbers.map(lambda number: {"N": number}),
    bool: st.booleans().map(lambda value: {"BOOL": value}),
    bytes: binaries.map(lambda value: {"B": value}),
    datetime: st.sampled_from([*({"S": m} for m in MOMENTS), {"N": "1714521600"}]),
    date: st.just({"S": "2024-05-01"}),
    time: st.just({"S": "10:11:12"}),
    timedelta: st.just({"S": "P1DT2H"}),
    UUID: st.just({"S": "00000000-0000-0000-0000-000000000005"}),
    AnyUrl: st.just({"S": "https://example.com/a"}),
    type(None): st.just({"NULL": True}),
}


@functools.cache
def fitting(annotation: Any) -> st.SearchStrategy[Any]:
    """Attributes that a value of this type is likely to be made from."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in FITTING:
        return FITTING[annotation]
    if origin is Literal:
        return st.sampled_from(arguments).map(stored)
    if origin in (Union, UnionType):
        return st.one_of(*map(fitting, arguments))
    if origin is Annotated:
        return fitting(arguments[0])
    if origin in (set, frozenset):
        return st.lists(fitting(arguments[0]), max_size=3).map(stored_set)
    if origin is dict:
        return st.dictionaries(names, fitting(arguments[1]), max_size=3).map(lambda m: {"M": m})
    if origin in (list, tuple):
        return st.lists(fitting(arguments[0]), max_size=3).map(lambda members: {"L": members})
    if isinstance(annotation, NewType):
        return fitting(annotation.__supertype__)
    if isinstance(annotation, TypeAliasType):
        return FITTING[int]
    if issubclass(annotation, Enum):
        return st.sampled_from([member.value for member in annotation]).map(stored)
    if issubclass(annotation, RootModel):
        return fitting(annotation.model_fields["root"].annotation)
    if issubclass(annotation, Entity):
        return st.just({"M": {"a": {"S": "inner"}}})
    return items_of(annotation).map(lambda content: {"M": content})


def stored(value: Any) -> dict[str, Any]:
    return {"S": value} if isinstance(value, str) else {"N": str(value)}


def stored_set(members: list[dict[str, Any]]) -> dict[str, Any]:
    if not members:
        return {"SS": ["a"]}
    ((kind, _),) = members[0].items()
    contents = {Decimal(m[kind]) if kind == "N" else m[kind]: m[kind] for m in members}
    return {f"{kind}S": list(contents.values())}


@st.composite
def items_of(draw: st.DrawFn, model: type[BaseModel]) -> dict[str, Any]:
    """Items whose attributes mostly fit; now and then one is of any kind, absent or unknown."""
    item = {}
    for name, field in model.model_fields.items():
        chance = draw(st.integers(0, 19))
        attribute = field.alias if field.alias and chance != 19 else name
        if chance == 0:
            item[attribute] = draw(attributes)
        elif chance != 1:
            item[attribute] = draw(fitting(field.annotation))
    if draw(st.integers(0, 9)) == 0:
        item |= draw(unknown)
    return item


def plain(value: Any) -> Any:
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() else value
        case Binary():
            return bytes(value.value)
        case dict():
            return {key: plain(inner) for key, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
        case set():
            return {plain(inner) for inner in value}
    return value


def usual_way(entity: type[Entity], item: dict[str, Any]) -> Entity | None:
    deserialize = TypeDeserializer().deserialize
    values = {name: plain(deserialize(attribute)) for name, attribute in item.items()}
    if entity.model_config.get("extra") in ("allow", "forbid"):
        aliases = {field.alias for field in entity.model_fields.values()}
        for name in SCHEMA.reserved_attributes - aliases - entity.model_fields.keys():
            values.pop(name, None)
    try:
        return entity.model_validate(values)
    except ValidationError:
        return None


def same(ours: Any, theirs: Any) -> bool:
    if type(ours) is not type(theirs):
        return False
    match ours:
        case BaseModel():
            parts = ("__dict__", "model_extra", "model_fields_set", "__pydantic_private__")
            return all(same(getattr(ours, part), getattr(theirs, part)) for part in parts)
        case dict():
            return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in ours)
        case list() | tuple():
            return len(ours) == len(theirs) and all(map(same, ours, theirs))
        case set() | frozenset():
            ordered = (sorted(members, key=repr) for members in (ours, theirs))
            return ours == theirs and all(map(same, *ordered))
        case Decimal():
            return bool(ours == theirs)
    return bool(ours == theirs)


DECODERS = {entity: ImageDecoder(entity, SCHEMA) for entity in MODELS}


def body_of(item: dict[str, Any]) -> bytes:
    return json.dumps(item, default=lambda value: base64.b64encode(value).decode()).encode()


def decoded(entity: type[Entity], item: dict[str, Any]) -> Entity | None:
    try:
        return DECODERS[entity].decode(body_of(item))
    except DecodeError:
        return None


@pytest.mark.parametrize("entity", MODELS)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_ours_is_what_the_usual_way_gives_and_a_few_fields_are_what_the_whole_entity_has(
    entity: type[Entity], data: st.DataObject
) -> None:
    """One item tells both: making it up takes longer than all the rest."""
    item = data.draw(items_of(entity))
    chosen = data.draw(st.integers(0, 2 ** len(entity.model_fields) - 1))
    wanted = tuple(
        name for place, name in enumerate(sorted(entity.model_fields)) if chosen >> place & 1
    )
    keys = {"PK": {"S": "X"}, "SK": {"S": "X"}, "type": {"S": "red"}}
    ours, theirs = decoded(entity, keys | item), usual_way(entity, keys | item)
    assert same(ours, theirs), f"{ours!r}\n{theirs!r}"
    for image, whole in ((item, decoded(entity, item)), (keys | item, ours)):
        if whole is not None:
            values = DECODERS[entity].values(body_of(image), wanted)
            assert same(
                {name: values[name] for name in wanted},
                {name: getattr(whole, name) for name in wanted},
            )


def test_the_fast_path_is_taken_where_it_can_be() -> None:
    for entity in MODELS:
        decoded(entity, {})  # what reads an entity's images is made for the first of them
    slow = {entity for entity, decoder in DECODERS.items() if decoder._read is None}
    assert slow == {WholeBefore, WholeWrap, Forbidding, Keeping, OwnInit}
