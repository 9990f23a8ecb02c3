"""Tools for testing handlers and streamkit itself: time that does not pass by itself."""
