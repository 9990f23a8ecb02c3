"""`streamkit worker --health`: probes, metrics and the page, of a real process, in a real browser."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest

from tests.acceptance.conftest import DEADLINE

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Site:
    """The health server of a worker that runs."""

    def __init__(self, worker):
        told = json.loads(worker.wait_for("health.listening"))
        self.url = f"http://127.0.0.1:{told['port']}"
        worker.wait_for("shard.taken")

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=DEADLINE) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name):
        """Return the sum of a metric over its series."""
        lines = self.get("/metrics")[1].splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{"))


def test_a_worker_serves_probes_metrics_and_a_page_without_item_data(shop):
    shop.touch("broken")
    with shop.start("worker", "shop", "--health", "127.0.0.1:0") as worker:
        site = Site(worker)
        shop.put(1, "SECRETSTATUS")
        shop.until(lambda: site.metric("streamkit_stuck") == 1)
        assert site.get("/livez") == (200, "ok\n")
        assert site.get("/readyz") == (200, "ok\n")
        assert site.get("/elsewhere")[0] == 404
        assert site.metric("streamkit_changes_total") == 2
        assert site.metric("streamkit_shards") == 1
        assert site.metric("streamkit_units_total") > 10
        status, page = site.get("/")
        assert status == 200
        for shown in ("<title>shop · streamkit</title>", "journal", "PerStatus", "items stuck"):
            assert shown in page
        for text in (page, site.get("/metrics")[1], "\n".join(worker.lines)):
            assert "SECRETSTATUS" not in text
            assert "ORDER#" not in text
        worker.signal(signal.SIGTERM)
        assert worker.exit_code() == 0


TOKEN = "a-token-of-enough-letters"


class Reader(Site):
    """The page of a worker that has a token, as somebody who knows it uses it."""

    def ask(self, path="/", *, token=TOKEN, origin=None, **form):
        headers = {"Authorization": f"Bearer {token}"}
        if origin is not None:
            headers["Origin"] = origin
        body = urllib.parse.urlencode(form).encode() if form else None
        request = urllib.request.Request(self.url + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def test_with_its_token_the_page_explains_an_item_pauses_and_redrives(shop):
    shop.touch("broken")
    options = {"STREAMKIT_HEALTH_TOKEN": TOKEN}
    with shop.start("worker", "shop", "--health", "127.0.0.1:0", **options) as worker:
        site = Reader(worker)
        shop.put(1, "SECRETSTATUS")
        shop.until(lambda: site.metric("streamkit_stuck") == 1)
        assert site.get("/")[0] == 401
        assert site.ask(token="a-token-of-other-letters")[0] == 401
        assert site.get("/livez") == (200, "ok\n")
        status, page = site.ask("/?errors=shop")
        assert status == 200
        assert "the downstream is broken" in page
        proof = re.search('name="proof" value="([0-9a-f]{64})"', page)[1]

        explained = site.ask(pk="ORDER#1", sk="ORDER")[1]
        assert "shop/journal" in explained
        assert "SECRETSTATUS" not in explained
        assert "has a sort key" in site.ask(pk="ORDER#1")[1]

        deed = {"consumer": "shop", "proof": proof}
        assert site.ask(act="pause", consumer="shop")[0] == 403
        assert site.ask(act="pause", origin="http://evil.example", **deed)[0] == 403
        assert "no such consumer" in site.ask(act="erase", **deed)[1]
        assert "shop is paused" in site.ask(act="pause", **deed)[1]
        assert shop.json("status", "shop")["paused"]
        assert "shop continues" in site.ask(act="resume", **deed)[1]
        shop.remove("broken")
        done = site.ask(act="redrive", handler="journal", **deed)[1]
        assert "1 parked changes of journal are done, 0 failed again" in done
        assert shop.journal(1) == "SECRETSTATUS"
        worker.wait_for("health.acted")


def test_a_worker_that_drains_is_not_ready_and_lives_on(shop):
    with shop.start("worker", "shop", "--health", "127.0.0.1:0", "--grace", "30") as worker:
        site = Site(worker)
        shop.touch("hangs")
        shop.put(1, "A")
        shop.until((shop.folder / "hanging").exists)
        worker.signal(signal.SIGTERM)
        worker.wait_for("process.draining")
        status, text = site.get("/readyz")
        assert (status, text.splitlines()[0]) == (503, "it drains")
        assert site.get("/livez") == (200, "ok\n")


@pytest.mark.parametrize("address", ["8080", "nowhere:"])
def test_an_address_that_is_none_is_wrong_usage(shop, address):
    done = shop.run("worker", "shop", "--health", address)
    assert done.returncode == 2
    assert "HOST:PORT" in done.stderr


def test_an_address_that_is_taken_is_wrong_usage(shop):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = shop.run("worker", "shop", "--health", address)
    assert done.returncode == 2
    assert address in done.stderr


def browse(url, *, dark, width, folder):
    """Let a browser without a window render a page; return what it has made of it."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)} is installed")
    command = [
        program,
        "--headless",
        "--no-sandbox",  # as root, as in a container, it would not start otherwise
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder / f'browser-{width}'}",
        f"--window-size={width},1400",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        f"--screenshot={folder / f'page-{width}.png'}",
        "--enable-logging=stderr",
        "--dump-dom",
        url,
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )
    return done, folder / f"page-{width}.png"


def width_of(png):
    return int.from_bytes(png.read_bytes()[16:20], "big")


def test_a_browser_shows_the_page_with_its_style_and_complains_of_nothing(shop, tmp_path):
    with shop.start("worker", "shop", "--health", "127.0.0.1:0") as worker:
        site = Site(worker)
        shop.put(1, "A")
        shop.until(lambda: site.metric("streamkit_changes_total") == 2)
        for dark, width in ((False, 1200), (True, 500)):
            done, picture = browse(site.url + "/", dark=dark, width=width, folder=tmp_path)
            assert "CONSOLE" not in done.stderr, "its policy lets its own style pass"
            assert 'class="tiles"' in done.stdout
            assert width_of(picture) == width
            assert picture.stat().st_size > 20_000, "more than an empty page"
