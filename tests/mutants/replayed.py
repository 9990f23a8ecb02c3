"""Bugs that the replays of the models find: the code goes where its model does not."""

from tests.mutants.mutant import Mutant

_LEASE = "tests/models/test_leased_commit.py::test_the_code_goes_where_random_schedules_go"

MUTANTS = (
    Mutant(
        "adopted-across-generations",
        "processing/commit.py",
        """            or (there.owner, there.epoch, there.generation)
            != (mine.owner, mine.epoch, mine.generation)
""",
        """            or (there.owner, there.epoch)
            != (mine.owner, mine.epoch)
""",
        "an owner whose cursor was raised goes on in its old generation from a plan of its own",
        test=_LEASE,
    ),
    Mutant(
        "the-newest-plan-forgotten",
        "processing/commit.py",
        "            del self._sent[next(iter(self._sent))]\n",
        "            del self._sent[next(reversed(self._sent))]\n",
        "a worker that has sent many plans in doubt forgets the one that it has just sent",
        test=_LEASE,
    ),
)
