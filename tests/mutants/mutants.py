"""Every mutant there is: deliberate bugs that the tests have to catch."""

from tests.mutants import (
    builds,
    changes,
    engine,
    failures,
    fleet,
    keys,
    kinds,
    lambdas,
    leases,
    listeners,
    migrations,
    moves,
    odd,
    pairs,
    shards,
    telemetry,
)

MUTANTS = (
    *leases.MUTANTS,
    *shards.MUTANTS,
    *changes.MUTANTS,
    *fleet.MUTANTS,
    *failures.MUTANTS,
    *listeners.MUTANTS,
    *keys.MUTANTS,
    *kinds.MUTANTS,
    *builds.MUTANTS,
    *lambdas.MUTANTS,
    *migrations.MUTANTS,
    *moves.MUTANTS,
    *odd.MUTANTS,
    *pairs.MUTANTS,
    *telemetry.MUTANTS,
    *engine.MUTANTS,
)
