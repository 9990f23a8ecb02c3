"""Every mutant there is: deliberate bugs that the tests have to catch."""

from tests.mutants import changes, failures, fleet, kinds, leases, listeners, shards

MUTANTS = (
    *leases.MUTANTS,
    *shards.MUTANTS,
    *changes.MUTANTS,
    *fleet.MUTANTS,
    *failures.MUTANTS,
    *listeners.MUTANTS,
    *kinds.MUTANTS,
)
