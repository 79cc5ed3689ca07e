"""What others published of fleets, their traffic and their caches, beside the library's answers."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import typer

from experiments import _report
from experiments._claims import Claim, Ours, beside, show
from experiments._fleets import clusters, ragpulse
from infer_jax.catalog.files import write_text

app = _report.program(__doc__)
FILE = Path(ragpulse.__file__).with_name("claims.csv")
SOURCES: dict[str, Callable[[], Ours]] = {
    "ragpulse": ragpulse.figures,
    "mooncake": clusters.mooncake,
    "lmcache": clusters.lmcache,
    "splitwise": clusters.splitwise,
    "vidur": clusters.vidur,
    "servegen": ragpulse.provisioning,
}
HEAD, RULE = ("claim", "published", "ours", "agrees"), ("---",) * 4  # of the table on a page
WORDS = {"pass": "yes", "fail": "no"}


def cells_of(claim: Claim) -> tuple[str, ...]:
    """A row of the table on a page."""
    return claim.name, claim.theirs, claim.ours, WORDS.get(claim.verdict, claim.verdict)


def claims(*names: str) -> list[Claim]:
    """The claims of these sources beside ours; of all where none is named."""
    ours: Ours = {}
    with jax.enable_x64(True):
        for name in names or SOURCES:
            ours |= SOURCES[name]()
    return beside(FILE, ours)


@_report.command(app)
def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Of {', '.join(SOURCES)}; all if none.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="A page whose table of claims is written anew.")
    ] = None,
) -> dict[str, Any]:
    """Print claims beside ours: pass, fail or not reachable, and why."""
    found = claims(*_report.chosen_keys("source", names or list(SOURCES), SOURCES))
    if page is not None:
        table = "".join(
            f"| {' | '.join(cells)} |\n" for cells in (HEAD, RULE, *map(cells_of, found))
        )
        text = re.sub(r"\| claim \|.*\n(\|.*\n)+", lambda _: table, page.read_text("utf-8"))
        write_text(page, text)
    return show("Fleets as others published them", found)


if __name__ == "__main__":
    app()
