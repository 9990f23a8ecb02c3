"""A copy that an audience's page has shown is read from the table when it is tried again."""

from streamkit import Entity
from streamkit.kinds.mirror import FoundCopy


class Task(Entity, pk="TASK#{task}", sk="TASK#{task}"):
    task: str
    owner: str


class Tasks:
    """A table in which the copy has changed since its page was read."""

    async def get(self, key):
        return Task(task="t", owner="new")

    def found(self, key, stored):
        return Task(task="t", owner=stored["owner"]["S"])


async def test_a_copy_is_read_from_the_table_when_it_is_tried_again():
    copied, table = FoundCopy(Task.key(task="t"), {"owner": {"S": "old"}}), Tasks()
    assert [(await copied.read(table)).owner for _ in range(3)] == ["old", "new", "new"]
