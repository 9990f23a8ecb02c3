"""Living examples: one folder for each system, with its entities, handlers, a demo and a README."""
