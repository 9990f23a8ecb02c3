"""Handler kinds beyond plain functions; each turns changes into the same effects."""
