"""Health: what a worker's process says of itself over HTTP: probes, metrics and a page for people.

`server` speaks the little HTTP that this takes, `site` knows the paths, `checks` decides on the
probes, `page` draws. None of it shows item data.
"""
