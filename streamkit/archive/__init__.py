"""The archive: the shards of a stream, longer than a day, as objects in a bucket or a directory."""

from streamkit.archive.bucket import BucketArchive
from streamkit.archive.directory import DirectoryArchive
from streamkit.archive.objects import Archive, Flush

__all__ = ["Archive", "BucketArchive", "DirectoryArchive", "Flush"]
