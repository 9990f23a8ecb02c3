"""Style: the style sheet of the status page, for phones and screens, light and dark."""

import base64
import hashlib

CSS = """
:root { color-scheme: light dark; --back: #f6f7f9; --card: #fff; --text: #1a1d21; --soft: #626a75;
  --line: #e1e5ea; --good: #12783f; --warn: #9a5b00; --bad: #b3261e; --accent: #2456c4; }
@media (prefers-color-scheme: dark) {
  :root { --back: #111418; --card: #1a1e24; --text: #e6e9ed; --soft: #98a1ad; --line: #2b313a;
    --good: #5ccb8c; --warn: #e5b04c; --bad: #ff8a80; --accent: #8ab0ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main, header, footer { max-width: max(1120px, 80vw); margin: 0 auto; padding: 0 16px; }
@media (min-width: 2400px) { body { font-size: 18px; } }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 12px; padding-top: 20px; }
h1 { font-size: 1.35rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 28px 0 10px; }
h3 { font-size: .95rem; margin: 20px 0 6px; color: var(--soft); font-weight: 600; }
p { margin: 6px 0; }
.soft { color: var(--soft); }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
.pill { border: 1px solid currentColor; border-radius: 99px; padding: 1px 10px; font-weight: 600;
  font-size: .85rem; white-space: nowrap; }
.tiles { display: grid; gap: 10px; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 12px; }
.tile b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: .82rem; }
.table { overflow-x: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: left; padding: 6px 12px; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
tr + tr > *, tbody tr > * { border-top: 1px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
code, .tree { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.tree i { font-style: normal; color: var(--soft); }
tr.done td { color: var(--soft); }
.none { color: var(--soft); padding: 8px 12px; margin: 0; }
ul.reasons { margin: 10px 0 0; padding: 10px 12px 10px 30px; background: var(--card);
  border: 1px solid var(--bad); border-radius: 10px; }
.tools { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; margin: 6px 0; }
form { display: flex; flex-wrap: wrap; gap: 8px; margin: 6px 0; }
td form { margin: 0; }
input, button { font: inherit; color: var(--text); background: var(--card); max-width: 100%;
  border: 1px solid var(--line); border-radius: 8px; padding: 4px 10px; }
button { cursor: pointer; border-color: var(--accent); color: var(--accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
a { color: var(--accent); }
.said { border: 1px solid var(--accent); border-radius: 10px; padding: 10px 12px; }
.charts { display: grid; gap: 10px; margin-top: 10px;
  grid-template-columns: repeat(auto-fit, minmax(240px, 1fr)); }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 12px; }
figcaption { display: flex; justify-content: space-between; font-size: .85rem; }
svg.chart { width: 100%; height: 64px; display: block; }
svg.spark { width: 96px; height: 20px; display: block; }
polyline { fill: none; stroke: var(--accent); stroke-width: 1.5;
  vector-effect: non-scaling-stroke; }
path { stroke: var(--line); vector-effect: non-scaling-stroke; }
progress { width: 120px; accent-color: var(--accent); }
td.text { white-space: normal; min-width: 240px; overflow-wrap: anywhere; }
footer { color: var(--soft); font-size: .82rem; padding-top: 24px; padding-bottom: 28px; }
"""

POLICY = (
    "default-src 'none'; form-action 'self'; style-src"
    f" 'sha256-{base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()}'"
)
"""A Content-Security-Policy that allows this style, forms for this page, and nothing else."""
