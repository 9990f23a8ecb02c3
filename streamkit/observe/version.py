"""The version, in one place: the build and the user agent read it from here."""

__version__ = "0.1.0"
"""The installed version of streamkit, as `major.minor.patch`."""
