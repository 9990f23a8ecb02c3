"""What happens to changes, in order: dispatch, outcomes, planning, commit; and failures."""
