"""A picture as an HTML page: the figure inside, its words as text, and the answer below it."""

import io
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"  # no script, nothing loaded
LOOK = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1d2127; --rule: #c5cbd1; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ground: #15181d; --ink: #e8eaed; --rule: #444c56; }
}
body { margin: 0 auto; max-width: 75rem; padding: 1rem; background: var(--ground);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
h1 { position: absolute; clip-path: inset(50%); } /* the picture has its own */
figure { margin: 0; padding: 0.5rem; background: #ffffff; border: 1px solid var(--rule);
  overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 36rem; max-width: 60rem; height: auto;
  margin: 0 auto; } /* narrow windows scroll it: smaller letters cannot be read */
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 0.6rem 0; }
td, th { padding: 0.15rem 0.6rem; border-bottom: 1px solid var(--rule); white-space: nowrap; }
pre { overflow-x: auto; }
@media print { figure { break-inside: avoid; border: 0; } figure svg { min-width: 0; } }
"""


def page(figure: "Figure", answer: str) -> str:
    """A page of a figure that needs nothing beside it; ``answer`` is HTML that stands below."""
    title, caption = (escape(text) for text in said(figure))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{title}</title><style>{LOOK}</style></head>\n<body><main><h1>{title}</h1>\n"
        f'<figure tabindex="0"><div role="img" aria-label="{title}. {caption}">{_svg(figure)}'
        f"</div></figure>\n"
        f'<div class="wide" tabindex="0" role="region" aria-label="The answer">'
        f"{answer}</div></main></body></html>\n"
    )


def said(figure: "Figure") -> tuple[str, str]:
    """The title and the caption of a figure, each in one line, as a reader sees them."""
    title = figure.get_suptitle()
    caption = " ".join(text.get_text() for text in figure.texts if text.get_text() != title)
    both = (" ".join(text.split()).replace(r"\$", "$") for text in (title, caption))
    return next(both), next(both)


def _svg(figure: "Figure") -> str:
    """The figure as an SVG element."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return drawn.getvalue().partition("<svg")[2].join(("<svg", ""))
