"""The archive: the shards of a stream, longer than a day, as objects in a bucket or a directory."""

from streamkit.archive.bucket import BucketArchive
from streamkit.archive.directory import DirectoryArchive

__all__ = ["BucketArchive", "DirectoryArchive"]
