"""`streamkit worker --health`: probes, metrics and the page, of a real process, in a real browser."""

import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.error
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
