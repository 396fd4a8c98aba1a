"""The style sheet of the page, light and dark."""

from __future__ import annotations

from evaluation.quality import COLOURS

_VARIANTS = "\n".join(
    f".{variant} {{ fill: {colour}; background: {colour}; }}" for variant, colour in COLOURS.items()
)

STYLE = f"""
:root {{
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1c1e21; --quiet: #5d636b; --line: #d9dce0; --band: #f4f5f7;
  --gain: #0072b2; --loss: #b84a00;
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --paper: #16181c; --ink: #e6e8eb; --quiet: #9aa1ab; --line: #383d45; --band: #20242a;
    --gain: #5ab4ee; --loss: #f58a4b;
  }}
}}
* {{ box-sizing: border-box; }}
body {{
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}}
main {{ max-width: 64rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }}
h1 {{ font-size: 1.7rem; margin: 0 0 .5rem; }}
h2 {{ font-size: 1.25rem; margin: 2.5rem 0 .5rem; }}
h3 {{ font-size: 1rem; margin: 1.75rem 0 .5rem; }}
.lead {{ color: var(--quiet); max-width: 44rem; margin: 0; }}
a {{ color: var(--gain); }}
ul {{ padding-left: 1.2rem; margin: .5rem 0 1rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0; }}
th, td {{ text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); }}
th {{ color: var(--quiet); font-weight: 600; font-size: .85rem; white-space: nowrap; }}
th.n, td.n {{ text-align: right; padding: .3rem 0 .3rem 1rem; white-space: nowrap; }}
td:first-child {{ white-space: nowrap; }}
.interval {{ display: block; color: var(--quiet); font-size: .75rem; }}
.key {{ display: inline-block; width: .7rem; height: .7rem; border-radius: 2px;
  margin-right: .5rem; }}
figure {{ margin: 1rem 0; max-width: 46rem; }}
figcaption {{ color: var(--quiet); font-size: .85rem; }}
svg {{ width: 100%; height: auto; display: block; }}
svg text {{ fill: var(--ink); font-size: 12px; font-variant-numeric: tabular-nums; }}
.grid {{ stroke: var(--line); }}
.axis {{ stroke: var(--quiet); }}
.whisker {{ stroke: var(--ink); stroke-width: 1.3; }}
.gain {{ fill: var(--gain); }}
.loss {{ fill: var(--loss); }}
.gain-text {{ color: var(--gain); }}
.loss-text {{ color: var(--loss); }}
.case {{ border: 1px solid var(--line); border-radius: 6px; padding: .5rem .8rem;
  margin: .4rem 0; }}
.case[open] {{ background: var(--band); }}
summary {{ cursor: pointer; }}
.query {{ overflow-wrap: anywhere; }}
.scores, .title {{ display: block; color: var(--quiet); font-size: .82rem; }}
.case table {{ font-size: .85rem; width: 100%; }}
.unjudged {{ color: var(--quiet); }}
.grade {{ display: inline-block; min-width: 1.5rem; text-align: center; border-radius: 3px;
  border: 1px solid var(--line); }}
.g1, .g2, .g3 {{ color: var(--paper); background: var(--gain); border-color: var(--gain); }}
.g1 {{ opacity: .7; }}
.g2 {{ opacity: .85; }}
{_VARIANTS}
"""
