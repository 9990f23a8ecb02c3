"""What a migration's function makes of an item, and the write that is conditional on its read.

Pure: nothing here talks to DynamoDB, so that tests need only items.
"""
