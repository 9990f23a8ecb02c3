"""The past of a table: its archive, and the stream behind its end, read as one."""
