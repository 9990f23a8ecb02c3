"""Tags of tables: TagResource, UntagResource, ListTagsOfResource."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from unicodedata import category

from streamkit.local.errors import ApiError, validation
from streamkit.local.parameters import Payload, array, required, structure, text
from streamkit.local.tables import EngineTable

if TYPE_CHECKING:
    from streamkit.local.engine import Engine

_MOST_TAGS = 50
_SIGNS = "+-=._:/@"


def parse_tags(given: Any) -> dict[str, str]:
    """Return the tags of a request, by key."""
    tags: dict[str, str] = {}
    for tag in array(given):
        key, value = _checked_key(structure(tag).get("Key")), tag.get("Value")
        if value is None or len(text(value)) > 256 or not _has_tag_characters(value):
            shown = "null" if value is None else value
            raise validation(f"The Tag Value provided is invalid, Value: {shown}")
        if key.startswith("aws:"):
            raise validation(f"Tag Key cannot be prefixed with aws:, Key: {key}")
        if key in tags:
            raise validation(f"Duplicate Tag Keys provided as input: Duplicate Tag Key found {key}")
        tags[key] = value
    if len(tags) > _MOST_TAGS:
        raise _too_many()
    return tags


def _checked_key(given: Any) -> str:
    key = "" if given is None else text(given)
    if not key or len(key) > 128 or not _has_tag_characters(key):
        shown = "null" if given is None else key
        raise validation(f"The Tag Key provided is invalid, Key: {shown}")
    return key


def _has_tag_characters(given: str) -> bool:
    """Return whether there are only letters, digits, spaces (of any script) and a few signs."""
    return all(one in _SIGNS or category(one)[0] in "LNZ" for one in given)


def tag_resource(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `TagResource`."""
    required(payload, "ResourceArn", "Tags")
    added = parse_tags(payload["Tags"])
    if not added:
        raise validation("Atleast one Tag needs to be provided as Input.")
    table = _tagged(engine, payload, "TagResource")
    tags = table.options.tags | added
    if len(tags) > _MOST_TAGS:
        raise _too_many()
    table.options.tags = tags
    return {}


def untag_resource(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `UntagResource`."""
    required(payload, "ResourceArn", "TagKeys")
    removed = set(map(text, array(payload["TagKeys"])))
    if not removed:
        raise validation("Atleast one Tag Key needs to be provided as Input.")
    for key in sorted(removed):
        _checked_key(key)
    if len(removed) > _MOST_TAGS:
        raise _too_many()
    options = _tagged(engine, payload, "UntagResource").options
    options.tags = {key: value for key, value in options.tags.items() if key not in removed}
    return {}


def list_tags_of_resource(engine: "Engine", payload: Payload) -> Payload:
    """Carry out `ListTagsOfResource`; all tags fit one page."""
    required(payload, "ResourceArn")
    table = _tagged(engine, payload, "ListTagsOfResource")
    return {"Tags": [{"Key": key, "Value": value} for key, value in table.options.tags.items()]}


def _tagged(engine: "Engine", payload: Payload, operation: str) -> EngineTable:
    arn = text(payload["ResourceArn"])
    if not arn.startswith("arn:"):
        raise validation(
            f"One or more parameter values were invalid: ARNs must start with 'arn:': {arn}"
        )
    table = engine.tables.get(arn.rpartition("/")[2])
    if table is not None and table.arn == arn:
        return table
    if operation == "ListTagsOfResource":
        # Like the service, do not reveal through tags which tables exist.
        raise ApiError(
            "AccessDeniedException",
            f"User is not authorized to perform: dynamodb:{operation} on resource: {arn}",
        )
    raise ApiError(
        "ResourceNotFoundException", f"Requested resource not found: ResourcArn: {arn} not found"
    )


def _too_many() -> ApiError:
    return validation("Number of Tags exceed the current limit for the provided ResourceArn")


OPERATIONS: dict[str, Callable[["Engine", Payload], Payload]] = {
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
    "ListTagsOfResource": list_tags_of_resource,
}
