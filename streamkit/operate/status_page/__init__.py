"""Health: a worker's process answers over HTTP with probes, metrics and a status page.

`server` speaks the small part of HTTP needed here, `site` knows the paths, `checks` decides the
probes, `page` renders the page. None of it shows item data.
"""
