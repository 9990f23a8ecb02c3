"""What an app declares about its items: fields, keys, templates, indexes and conditions."""
