"""Studies of silicon: which chip for these users, and what would change the answer."""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import typer

from experiments import _report
from experiments._silicon.frame import KEPT, STUDIES, Study, keep
from experiments._silicon.page import Page
from infer_jax.catalog.files import write_text
from infer_jax.plots.style import Figure, save

app = _report.program(__doc__)


def studied(name: str, *, again: bool, light: bool = False) -> tuple[Page, Figure, Study]:
    """A study's page and picture; without ``again`` its designs are those that were kept."""
    module = import_module(f"experiments._silicon.{name}")
    run: Callable[[Study], tuple[Page, Figure]] = module.run
    with jax.enable_x64(True):
        kept = None if again else json.loads(KEPT.read_text("utf-8")).get(name, {})
        study = getattr(module, "Kind", Study)(name, kept, light=light)
        return *run(study), study


@app.command()
def main(
    names: Annotated[
        list[str], typer.Argument(help=f"One or more of {', '.join(STUDIES)}; or all.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of pages and pictures.")] = Path("docs"),
    kept: Annotated[bool, typer.Option("--kept", help="Take the designs that were found.")] = False,
) -> None:
    """Run studies: print each page, write it to silicon/NAME.md, its picture to pictures/."""
    with _report.door():
        chosen = list(STUDIES) if names == ["all"] else _report.chosen_keys("study", names, STUDIES)
        for name in chosen:
            page, figure, study = studied(name, again=not kept)
            print(page.text)
            (out / "silicon").mkdir(parents=True, exist_ok=True)
            write_text(out / "silicon" / f"{name}.md", page.text)
            save(figure, out / "pictures" / f"silicon_{name}.png")
            if not kept:
                keep(name, study.designs)


if __name__ == "__main__":
    app()
