"""The status page in a browser: `make page`. It needs Chromium, so `make test` leaves it out.

The page is laid out by the browser itself at the widths of a phone, a tablet and two screens, light
and dark, with everything on it that it can show. A script, which only this copy of the page has,
measures it: nothing may be wider than the screen but what scrolls by itself, and all text has to
stand out from what is behind it. The pictures are in `build/page`, to be looked at.
"""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from streamkit.migrate.operate.status import Line
from streamkit.operate.explanation import Explanation, Listening, Waiting
from streamkit.operate.fan_outs import FanOutStatus
from streamkit.operate.operations import OperationStatus
from streamkit.operate.spending import Spending
from streamkit.operate.status import WorkerStatus
from streamkit.operate.status_page.history import STEP_SECONDS, History
from streamkit.operate.status_page.views import Asked, ConsumerView
from streamkit.worker.report import WorkerReport
from tests.unit.test_status_page import PARKED, page, shard, status, view

PICTURES = Path(__file__).parents[2] / "build" / "page"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (360, 768, 1440, 3840)
SCHEMES = {"light": "1", "dark": "0"}
"""Blink's numbers of what `prefers-color-scheme` asks for."""

CONTRAST = 4.5
"""What WCAG 2 asks for, level AA."""

OWNER = "ip-10-0-{}-17.eu-central-1.compute.internal/1/3f2a9b8c7d6e"

MEASURE = """
<script>
const channel = (v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
function behind(element) {
  for (; element; element = element.parentElement) {
    const found = numbers(getComputedStyle(element).backgroundColor);
    if (found.length < 4 || found[3] > 0) return found;
  }
  return [255, 255, 255];
}
const faint = [], wide = [], screen = document.documentElement.clientWidth;
for (const element of document.body.querySelectorAll("*")) {
  const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  if (own && element.getClientRects().length) {
    const sides = [light(numbers(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(...sides) + .05) / (Math.min(...sides) + .05);
    if (ratio < CONTRAST) faint.push([element.tagName, element.textContent, ratio]);
  }
  const right = element.getBoundingClientRect().right;
  if (right > screen + 1 && !element.closest(".table")) wide.push([element.tagName, right]);
}
parent.document.body.dataset.found = JSON.stringify({
  screen, faint, wide, scroll: document.documentElement.scrollWidth,
  back: getComputedStyle(document.body).backgroundColor,
});
</script>
"""


@pytest.fixture(scope="session")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, "install Chromium, as with `apt-get install chromium`"
    return found


def everything():
    """Return a page with all that it can show: long names, many rows, charts, forms, an item."""
    kept = History()
    for number in range(240):
        lag = 4000.0 - 10 * number
        values = dict.fromkeys(("deals:lag", "deals:shard:s-0", "deals:notify:behind"), lag)
        kept.note(number * STEP_SECONDS, values, {"deals:changes": 60.0 * number})
    name = "shardId-00000001795296965923-be4f9a{:02}"
    workers = tuple(
        WorkerStatus(OWNER.format(n), "active", 4, 2, 9, 0, 1.0, leads=n == 0, silent=n == 2)
        for n in range(3)
    )
    found = status(
        *(shard(name.format(n), owner=OWNER.format(n % 3), depth=n % 4) for n in range(12)),
        shard("s-0", waits_for=("notify",), parked={"notify": 3}, parked_queues=2),
        shard("late", owner=None, lag_seconds=90_000.0, lost=9, time_to_loss_seconds=20.0),
        parked={"notify": 12},
        stuck_queues=3,
        workers=workers,
        unread_shards=("late",),
        needs_rebuild=("BrandLikes",),
        fan_outs=(FanOutStatus("q1", "notify", "serving", 1_500_000, 2, 3, 0, 0.6, 480.0, 2e3),),
        operations=(OperationStatus("rebuild", "BrandLikes", "scanning", share=0.25, left=6e3),),
    )
    waits = (Waiting("1", "ValueError", 3, 0),)
    item = Explanation(
        **dict.fromkeys(Explanation.__dataclass_fields__)
        | {"entity": "Deal", "digest": "ab12", "exists": True, "attributes": ("number",)}
        | {"listening": (Listening("deals", "notify", (), None, "", "q", "stuck", parked=waits),)}
    )
    own = view(
        found,
        report=WorkerReport("deals", "active", {"s-0": 1600.0}),
        migrations=[Line("0003_prices_in_cents", "backfilling", "50.0%", 7, "captures", 0.5, 90.0)],
        spending=Spending("deals", 1, 900, {"read": 1e6, "write": 4e6, "stream": 2e6}, 0.2),
        parked=[PARKED],
    )
    archive = ConsumerView(
        WorkerReport("deals.archive", "active", {"a": 1.0, "b": 900.0}), (), status(), copies=True
    )
    asked = Asked(history=kept, errors="deals", proof="p", explained=item, finished=True)
    return page(own, archive, asked=asked, ready=("deals: late is read by no worker",))


def looked_at(browser, folder, width, scheme):
    """Return what the browser measures, after it has taken a picture.

    A window of Chromium has at least 500 pixels; a frame in it is as narrow as a phone.
    """
    PICTURES.mkdir(parents=True, exist_ok=True)
    file = folder / "page.html"
    text = everything() + MEASURE.replace("CONTRAST", str(CONTRAST))
    file.write_text(
        f'<body style="margin: 0"><iframe srcdoc="{html.escape(text)}"'
        f' style="border: 0; width: {width}px; height: 2400px"></iframe>'
    )
    command = [
        *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *(f"--user-data-dir={folder / 'profile'}", f"--window-size={width},2400"),
        *(f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",),
    ]
    picture = PICTURES / f"{width}-{scheme}.png"

    def run(what):
        env = {**os.environ, "HOME": str(folder)}
        told = {"env": env, "capture_output": True, "text": True, "timeout": 120}
        return subprocess.run([*command, what, file.as_uri()], check=True, **told).stdout

    run(f"--screenshot={picture}")
    shown = run("--dump-dom")
    return json.loads(html.unescape(re.search(r'data-found="([^"]*)"', shown)[1]))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_the_screen_and_its_text_stands_out(browser, tmp_path, width, scheme):
    found = looked_at(browser, tmp_path, width, scheme)
    assert found["screen"] == width
    assert found["scroll"] <= width, found["wide"]
    assert found["wide"] == []
    assert found["faint"] == []
    red, green, blue = map(int, re.findall(r"\d+", found["back"])[:3])
    assert (red + green + blue > 384) == (scheme == "light"), found["back"]
