"""Find workers and functions of another release than the one that gives a command.

A release is known by the fingerprint of its handlers: workers write it into their heartbeats, and
functions into their consumer's item. Two releases whose handlers are the same look alike, and
programs that are not streamkit's are not seen: those show by what they write.

In: the app of the release at hand, which knows the migration. Out: a sentence that names what runs
another one, or None. On failure: the errors of a read of the table.
"""

import anyio

from streamkit.app import App, consumers_of
from streamkit.aws import Aws
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError, some_of
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.hosting import LAMBDA
from streamkit.fleet.members import Member, MemberList
from streamkit.worker.joined_app import joined_app

_LEASE_SECONDS = 15.0
"""A worker that does not say its lease is dead after so many seconds of silence."""


async def other_releases(app: App, aws: Aws) -> str | None:
    """Return which workers and functions run another release than this one.

    It takes a lease longer if there are such workers: a dead one leaves its heartbeat behind.
    """
    tables, found = await survey(app, aws), list[str]()
    for consumer in consumers_of([app.head]):
        store = tables.store(consumer, aws)
        mine = (await joined_app(consumer, store)).fingerprint()
        found += [f"worker {one.name}" for one in await _strangers(MemberList(store), mine)]
        newest = await newest_generation(store)
        if newest is not None and newest.host == LAMBDA and newest.fingerprint != mine:
            found.append(f"the functions of {consumer.name}")
    if not found:
        return None
    return (
        f"{some_of(found)} run another release than this command: deploy the one"
        " that knows the migration, and run the command with it; or say --anyway with a reason"
    )


async def require_this_release(app: App, aws: Aws, anyway: str | None) -> None:
    """Refuse to go on while another release runs, unless there is a reason to do it anyway.

    Raises:
        ConfigurationError: another one runs, or the reason is empty.
    """
    if anyway is not None and not anyway.strip():
        raise ConfigurationError("--anyway takes a reason, which is stored")
    others = None if anyway is not None else await other_releases(app, aws)
    if others is not None:
        raise ConfigurationError(others)


async def _strangers(member_list: MemberList, fingerprint: str) -> list[Member]:
    """Return the live workers with another fingerprint."""
    before = _others(await member_list.read(), fingerprint)
    if not before:
        return []
    await anyio.sleep(max(one.lease or _LEASE_SECONDS for one in before.values()))
    after = _others(await member_list.read(), fingerprint)
    return [one for name, one in sorted(after.items()) if before.get(name) != one]


def _others(members: dict[str, Member], fingerprint: str) -> dict[str, Member]:
    return {name: one for name, one in members.items() if one.fingerprint != fingerprint}
