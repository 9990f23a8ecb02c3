"""Process changes in order: dispatch, outcomes, planning and commit; and handle failures."""
