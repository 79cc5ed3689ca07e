"""A report as one self-contained HTML file of sections, tables and charts."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from infer_jax.pages.svg import clean
from infer_jax.plots.style import INK, QUIET

STYLE = f"""
body{{font:16px/1.5 system-ui,sans-serif;color:{INK};background:#fff;max-width:46rem;
margin:2rem auto;padding:0 1rem}}
h1{{font-size:1.6rem;margin-bottom:.2rem}}h2{{font-size:1.15rem;margin:2.4rem 0 .3rem;
border-bottom:1px solid #ccc}}h3{{font-size:1rem;margin:1.2rem 0 .2rem}}
p,li,summary{{color:{QUIET}}}p.lead,p.lead+p{{color:{INK}}}
p,li{{overflow-wrap:anywhere}}
.picture{{overflow-x:auto}}
svg{{max-width:100%;min-width:34rem;height:auto;display:block;font:11.5px system-ui,sans-serif}}
svg :is(circle,rect,polygon):has(title):hover{{stroke:{INK};stroke-width:2}}
table{{border-collapse:collapse;font-size:.88rem;margin:.6rem 0;display:block;overflow-x:auto}}
td,th{{padding:.12rem .9rem .12rem 0;text-align:right;vertical-align:top;
font-variant-numeric:tabular-nums}}
th{{color:{QUIET};font-weight:normal;border-bottom:1px solid #ccc}}
td.w,th.w{{text-align:left}}tr.on td{{font-weight:bold}}
pre{{background:#f4f4f4;padding:.7rem;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem}}
@media print{{details{{display:block}}body{{max-width:none}}svg{{min-width:0}}}}
"""


class Section(NamedTuple):
    """A heading, one paragraph that says how to read what follows, and HTML."""

    anchor: str
    title: str
    about: str
    body: str


def page(title: str, lead: str, sections: Iterable[Section]) -> str:
    """The whole file. ``title`` and ``lead`` are plain text."""
    body = "".join(
        f'<section id="{safe(s.anchor)}"><h2>{safe(s.title)}</h2>{paragraph(s.about)}{s.body}'
        "</section>\n"
        for s in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title)}</title><style>{STYLE}</style></head>\n<body><h1>{safe(title)}</h1>"
        f'<p class="lead">{safe(lead)}</p>\n{body}</body></html>\n'
    )


def safe(text: object) -> str:
    """Text for a page: nothing in it can become an element or an attribute."""
    return escape(clean(text))


def paragraph(text: str) -> str:
    """A paragraph; nothing for an empty text."""
    return f"<p>{safe(text)}</p>" if text else ""


def heading(text: str) -> str:
    """A heading within a section."""
    return f"<h3>{safe(text)}</h3>"


def items(texts: Iterable[str]) -> str:
    """A list, one item a sentence, each once."""
    listed = "".join(f"<li>{safe(text)}</li>" for text in dict.fromkeys(texts))
    return f"<ul>{listed}</ul>" if listed else ""


def code(text: str) -> str:
    """Lines to be copied as they stand."""
    lines = "\n".join(safe(line) for line in text.split("\n"))
    return f"<pre>{lines}</pre>"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], words: Sequence[int]) -> str:
    """A table; the columns numbered in ``words`` are text, the others numbers."""

    def cells(row: Sequence[object], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=w' * (i in words)}>{safe(x)}</{tag}>" for i, x in enumerate(row)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{cells(heads, 'th')}</tr>{body}</table>"


def folded(title: str, body: str) -> str:
    """What is shown when it is asked for."""
    return f"<details><summary>{safe(title)}</summary>{body}</details>"
