"""The application of the demo: users star repositories, and open and close issues."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from handlers.repos.entities import Issue, Repo, Star
from handlers.repos.handlers import IssueCount, StarCount
from streamkit import Attr, Put, Set, absent, present
from streamkit.testing.final import Comparison, Final
from streamkit.testing.traffic import Writer

Names = dict[str, Any]

REPOS: tuple[Names, ...] = tuple(
    {"owner": owner, "name": name}
    for owner, name in (("ann", "kite"), ("ann", "loom"), ("bob", "kite"), ("zoe", "mill"))
)
USERS = 40


class Traffic:
    """Users of four repositories; the first one is popular."""

    async def open(self, writer: Writer) -> None:
        """Make the repositories."""
        await writer.put(*(Repo(**names) for names in REPOS))

    async def act(self, writer: Writer) -> None:
        """Do what a user does."""
        rng = writer.rng
        names = rng.choice((*REPOS, REPOS[0], REPOS[0]))
        if rng.random() < 0.5:
            await self._star(writer, names)
        elif rng.random() < 0.4:
            await self._open_issue(writer, names)
        else:
            await self._work_on_issue(writer, names)

    def expected(self, final: Final) -> Iterator[Comparison]:
        """Count stars and issues again; the numbers that were given have no gaps."""
        stars = Counter((star.owner, star.name) for star in final[Star])
        yield final.compare(
            StarCount, [StarCount(owner=o, name=n, stars=count) for (o, n), count in stars.items()]
        )
        states = Counter((issue.owner, issue.name, issue.state) for issue in final[Issue])
        yield final.compare(
            IssueCount,
            [
                IssueCount(
                    owner=owner,
                    name=name,
                    open=states[owner, name, "open"],
                    closed=states[owner, name, "closed"],
                )
                for owner, name in {(owner, name) for owner, name, _ in states}
            ],
        )
        made: dict[tuple[str, str], list[int]] = {}
        for issue in final.puts(Issue):
            made.setdefault((issue.owner, issue.name), []).append(issue.number)
        numbers = {(repo.owner, repo.name): repo.issues_made for repo in final[Repo]}
        yield Comparison.of(
            "numbers of issues",
            {repo: sorted(found) for repo, found in made.items()},
            {repo: list(range(1, last + 1)) for repo, last in numbers.items() if last},
        )

    async def _star(self, writer: Writer, names: Names) -> None:
        """Star a repository, perhaps once more, or take a star back."""
        user = f"user{writer.rng.randrange(USERS)}"
        if writer.rng.random() < 0.6:
            await writer.put(Star(**names, user=user, at=writer.now))
        else:
            await writer.delete(Star.key(**names, user=user))

    async def _open_issue(self, writer: Writer, names: Names) -> None:
        """Open an issue with the next number, in one transaction that takes the number."""
        repo = await writer.table.get(Repo.key(**names))
        if repo is None:
            return
        number = repo.issues_made + 1
        await writer.transact(
            Set(repo.item_key, issues_made=number).only_if(
                Attr("issues_made").eq(repo.issues_made)
            ),
            Put(Issue(**names, number=number, title=f"It breaks ({number})")).only_if(absent),
        )

    async def _work_on_issue(self, writer: Writer, names: Names) -> None:
        """Close an issue, open it again, give it another title, or delete it."""
        rng = writer.rng
        issues = [issue async for issue in writer.table.query(Issue.query(**names).reverse())]
        if not issues:
            return
        issue, chance = rng.choice(issues), rng.random()
        if chance < 0.7:
            state = "closed" if issue.state == "open" else "open"
            await writer.write(Set(issue.item_key, state=state).only_if(present))
        elif chance < 0.9:
            await writer.write(Set(issue.item_key, title="It still breaks").only_if(present))
        else:
            await writer.delete(issue.item_key)
