"""What operators call: begin, pause, switch, roll back, squash; and what they are shown."""
