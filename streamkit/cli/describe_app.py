"""Printing what an app declares: as text, and as a picture in Mermaid's language."""

from collections.abc import Iterator

from streamkit.cli.printing import say, table
from streamkit.operate.outline import AppOutline, EntityOutline, HandlerOutline


def describe_outline(found: AppOutline) -> None:
    """Print an app with its entities and handlers, then its listeners."""
    tables = f", and writes to {', '.join(found.tables)}" if found.tables else ""
    say(f"{found.app} on table {found.table}{tables}")
    if found.sinks:
        say(f"sinks: {', '.join(f'{name} ({kind})' for name, kind in found.sinks.items())}")
    say()
    rows = [row for entity in found.entities for row in _key_rows(entity)]
    table(("entity", "key", "partition", "sort", "keeps"), rows, drop=("keeps",))
    say()
    _describe_handlers(found)
    for one in found.listeners:
        say()
        begins = "" if one.start == found.start else f", which starts at {one.start}"
        say(f"listener {one.app}{begins}")
        _describe_handlers(one)


def _describe_handlers(found: AppOutline) -> None:
    heads = ("handler", "kind", "listens to", "reads", "writes", "sends", "declared")
    table(heads, map(_handler_row, found.handlers), drop=("declared",))


def _key_rows(entity: EntityOutline) -> Iterator[tuple[str, ...]]:
    keeps = ", ".join(f"{name}: {measure}" for name, measure in entity.counts.items())
    for name, (pk, sk) in entity.keys.items():
        first = name == "primary"
        yield entity.name if first else "", name, pk, sk or "-", (keeps or "-") if first else ""


def _handler_row(handler: HandlerOutline) -> tuple[str, ...]:
    changes = "" if len(handler.changes) == 4 else f" {'|'.join(handler.changes)}"
    when = " when" if handler.when else ""
    writes = "not said" if handler.writes is None else ", ".join(handler.writes) or "-"
    return (
        handler.name,
        handler.kind,
        f"{handler.entity}{changes}{when}",
        ", ".join(handler.reads) or "-",
        writes,
        ", ".join(handler.sends) or "-",
        handler.declared,
    )


def mermaid_of(found: AppOutline) -> str:
    """Return a flowchart: entities lead to their handlers, and those to what they write."""
    consumers = (found, *found.listeners)
    handlers = [(one.app, handler) for one in consumers for handler in one.handlers]
    lines = ["flowchart LR"]
    lines += [f'  {entity.name}["{entity.name}<br/>{_key(entity)}"]' for entity in found.entities]
    sinks = {name: kind for one in consumers for name, kind in one.sinks.items()}
    sink_nodes = {name: _node(f"s_{name}") for name in sinks}
    lines += [f'  {sink_nodes[name]}>"{name}<br/>{kind}"]' for name, kind in sinks.items()]
    for app, handler in handlers:
        own = _node(f"h_{app}_{handler.name}")
        lines.append(f'  {own}(["{handler.name}<br/>{handler.kind}"])')
        lines.append(f"  {handler.entity} --> {own}")
        lines += [f"  {read} -. read .-> {own}" for read in handler.reads]
        lines += [f"  {own} --> {written}" for written in handler.writes or ()]
        lines += [f"  {own} -- send --> {sink_nodes[sent]}" for sent in handler.sends]
    return "\n".join(lines)


def _key(entity: EntityOutline) -> str:
    pk, sk = entity.keys["primary"]
    text = pk if sk is None else f"{pk} / {sk}"
    return text.replace("#", "#35;")  # a plain one begins a code of Mermaid's


def _node(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)
