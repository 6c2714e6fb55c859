"""One self-contained HTML page of a report: the question, tables, figures, settings and how to make it again.

It loads nothing: style and script are in it, figures are SVG in its text, and the data of a figure are in its link.
Whatever a user has named (families, methods, folders, settings, commands) is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import NamedTuple

from posterity.experiment.records import Run
from posterity.report.drawing import INK, Drawing, slug
from posterity.report.metrics import called, flattened
from posterity.report.sheet import Sheet

MOST = 2_000_000  # bytes of a page
SCORES = (
    "Start is the first iteration in which the task's own model acts, Train is after the task's training, and Back is "
    "earlier tasks after all training. Zero-shot is before any data of the task."
)


class Content(NamedTuple):
    """What a page is made of."""

    runs: Sequence[Run]
    sheets: Sequence[Sheet]
    drawings: Sequence[tuple[Drawing, str]]  # with its SVG
    notes: Sequence[str]  # runs that were left out, and what to know about others
    command: str  # that makes the page again


def page(content: Content, most: int = MOST) -> str:
    """The page, of at most `most` bytes: the largest data, then the largest figures, are left out and named."""
    figures = {drawing.name: _figure(drawing, svg) for drawing, svg in content.drawings}
    made = _page(content, figures)
    for data_only in (True, False):
        for drawing, svg in sorted(content.drawings, key=lambda pair: -len(pair[0].csv()) - len(pair[1])):
            if len(made.encode()) <= most:
                return made
            figures[drawing.name] = _figure(drawing, svg if data_only else "", data=False)
            made = _page(content, figures)
    return made


def _page(content: Content, figures: Mapping[str, str]) -> str:
    style, script = (_resource(f"page.{kind}") for kind in ("css", "js"))
    proof = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{proof}'"
    families = list(dict.fromkeys(run.family for run in content.runs))
    title = f"posterity report: {', '.join(families)}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{_text(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
<header class="top">
<h1>{_text(title)}</h1>
<button id="theme" class="theme" type="button" data-now="auto" hidden>Colours: auto</button>
</header>
<main id="main">
<h2 id="question">The question</h2>
{_question(content.runs)}
{_notes(content.notes)}
{_filters(content.runs)}
<h2 id="tables">Tables</h2>
{"".join(_table(sheet) for sheet in content.sheets)}
<h2 id="figures">Figures</h2>
<div class="grid">
{"".join(figures.values()) or "<p>No figures were asked for.</p>"}
</div>
<h2 id="settings">Settings</h2>
{_settings(content.runs)}
<h2 id="reproduce">How to make it again</h2>
{_reproduce(content)}
</main>
<script>{script}</script>
</body>
</html>
"""


def _resource(name: str) -> str:
    return resources.files("posterity.report").joinpath(name).read_text(encoding="utf-8")


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)


def _question(runs: Sequence[Run]) -> str:
    methods = list(dict.fromkeys(run.method for run in runs))
    families = list(dict.fromkeys(run.family for run in runs))
    seeds = sorted({len(run.seeds) for run in runs})
    what = f"{len(runs)} run{'s' if len(runs) > 1 else ''} of {_listed(methods)} in {_listed(families)}"
    return (
        "<p>An agent meets related tasks one after the other. How fast does each method learn a new one from what it "
        f"learned before, and how much does it keep? This page is about {_text(what)}, with "
        f"{' or '.join(map(str, seeds))} seed{'s' if seeds != [1] else ''} each.</p>\n<p>{_text(SCORES)} Intervals are "
        "95 %, over seeds where there are several.</p>"
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return f'<div class="note" role="note"><ul>{"".join(f"<li>{_text(note)}</li>" for note in notes)}</ul></div>'


def _filters(runs: Sequence[Run]) -> str:
    choices = {
        "family": [(slug(run.family), run.family) for run in runs],
        "method": [(slug(run.method), run.method) for run in runs],
        "seed": [(str(seed), str(seed)) for seed in sorted({seed for run in runs for seed in run.seeds})],
    }
    plural = {"family": "families", "method": "methods", "seed": "seeds"}
    boxes = []
    for name, found in choices.items():
        options = "".join(f'<option value="{_text(v)}">{_text(t)}</option>' for v, t in dict.fromkeys(found))
        boxes.append(
            f'<label>{name.capitalize()}<select name="{name}"><option value="">all {plural[name]}</option>'
            f"{options}</select></label>"
        )
    return (
        f'<form class="filters" aria-label="Filter tables and figures" hidden>{"".join(boxes)}'
        '<output id="shown" aria-live="polite"></output></form>'
    )


def _table(sheet: Sheet) -> str:
    heads = "".join(
        f'<th scope="col"{_word(sheet, place)}><button type="button">{_text(name)}</button></th>'
        for place, name in enumerate(sheet.head)
    )
    keys = sheet.keys or [{}] * len(sheet.rows)
    rows = "".join(
        f"<tr{_data(each)}>{''.join(_cell(sheet, place, cell) for place, cell in enumerate(row))}</tr>\n"
        for each, row in zip(keys, sheet.rows, strict=True)
    )
    notes = f'<p class="under">{_text(". ".join(sheet.notes))}.</p>' if sheet.notes else '<p class="under"></p>'
    return (
        f'<section data-table><div class="scroll" tabindex="0" role="region" aria-label="{_text(sheet.title)}">'
        f"<table><caption>{_text(sheet.title)}</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>"
        f"</table></div>\n{notes}</section>\n"
    )


def _word(sheet: Sheet, place: int) -> str:
    return ' class="word"' if place < sheet.words else ""


def _cell(sheet: Sheet, place: int, cell: str) -> str:
    kind = 'th scope="row"' if place == 0 else "td"
    return f"<{kind}{_word(sheet, place)}>{_text(cell)}</{kind.split(maxsplit=1)[0]}>"


def _data(keys: Mapping[str, str]) -> str:
    """What filters look at."""
    return "".join(f' data-{name}="{_text(slug(value))}"' for name, value in keys.items())


def _figure(drawing: Drawing, svg: str, data: bool = True) -> str:
    code = base64.b64encode(drawing.csv().encode()).decode() if data else ""
    link = f'<a download="{_text(drawing.name)}.csv" href="data:text/csv;charset=utf-8;base64,{code}">Data (CSV)</a>'
    left = f"The page would be too large with its data: they are in {drawing.name}.csv of the report's folder."
    picture = inline_svg(svg, drawing) if svg else f"<p>It is in {_text(drawing.name)}.svg of the report's folder.</p>"
    title = f"{drawing.title}, {drawing.family}"
    return (
        f'<figure data-family="{_text(slug(drawing.family))}" id="{_text(drawing.name)}">\n{picture}\n'
        f"<figcaption><strong>{_text(title)}</strong> {_text(drawing.caption)} {link if data else _text(left)}"
        "</figcaption>\n</figure>\n"
    )


def inline_svg(svg: str, drawing: Drawing) -> str:
    """A figure that takes the page's colours, whose names clash with no other's, and whose methods can be hidden."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'id="method-([A-Za-z0-9_-]+)"', r'class="series" data-method="\1"', body)
    prefix = f"{slug(drawing.name)}--"
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}\1)", body)
    body = re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#{prefix}\1"', body)
    body = body.replace(INK, "currentColor").replace('style="fill: #ffffff"', 'style="fill: none"')
    head = re.sub(r'\s(width|height|version)="[^"]*"', "", body[: body.index(">") + 1])
    label = _text(f"{drawing.title}, {drawing.family}")
    return head.replace("<svg", f'<svg role="img" aria-label="{label}"', 1) + body[body.index(">") + 1 :].strip()


def _settings(runs: Sequence[Run]) -> str:
    labels, flat = called(runs), [flattened(run.config) for run in runs]
    names = list(dict.fromkeys(name for each in flat for name in each))
    differ = [name for name in names if len({each.get(name, "-") for each in flat}) > 1]
    parts = []
    if len(runs) > 1 and differ:
        rows = [(name, *(each.get(name, "-") for each in flat)) for name in differ]
        parts.append(_table(Sheet("In which the runs differ", ("setting", *labels), rows, words=1 + len(runs))))
    for run, label, each in zip(runs, labels, flat, strict=True):
        rows = "".join(
            f'<tr><th scope="row" class="word">{_text(k)}</th><td class="word">{_text(v)}</td></tr>'
            for k, v in each.items()
        )
        keys = {"family": run.family, "method": run.method}
        parts.append(
            f"<details{_data(keys)}><summary>All settings of {_text(label)}</summary>"
            f'<div class="scroll"><table>{rows}</table></div></details>\n'
        )
    return "".join(parts)


def _reproduce(content: Content) -> str:
    blocks = []
    for run, label in zip(content.runs, called(content.runs), strict=True):
        commands = "\n".join(str(session.get("command", "")) for session in run.sessions)
        first = run.sessions[0] if run.sessions else {}
        on = [f"{name} {first[name]}" for name in ("posterity", "python", "jax", "mujoco", "device") if name in first]
        blocks.append(
            f'<h3>{_text(label)}</h3>\n<pre>{_text(commands)}</pre>\n<p class="under">{_text(", ".join(on))}. Records: '
            f"{_text(run.folders)}. {run.wall_seconds / 60:.1f} minutes.</p>"
        )
    return f"{''.join(blocks)}\n<h3>This page</h3>\n<pre>{_text(content.command)}</pre>"
