"""What operators ask of consumers: status, explanation, inspection, a rewind, an end."""
