"""`infer-jax doctor`: does every device of this machine compute what it should?"""

from importlib.metadata import version

import jax
import typer

from infer_jax.cli import show
from infer_jax.cli.runtime import prepare
from infer_jax.compiling import cache_folder
from infer_jax.doctor import ALLOWED, examine
from infer_jax.verbs.progress import busy


def doctor(*, as_json: bool = False) -> None:
    """Compute stored answers on every device; exit 1 where one disagrees."""
    prepare(every_device=True)
    with busy("computing the stored answers on every device"):
        verdicts = examine()
    wrong = [v for v in verdicts if not v.agrees]
    folder = cache_folder()
    notes = [
        f"{v.device} is wrong in {v.dtype}: {v.row} is off by {v.worst:.2g}. "
        "Update jax and jaxlib, or run on another device."
        for v in wrong
    ]
    if as_json:
        rows = [
            {
                "device": v.device,
                "dtype": v.dtype,
                "rows": v.rows,
                "worst_relative_error": v.worst,
                "allowed_relative_error": ALLOWED[v.dtype],
                "worst_row": v.row,
                "agrees": v.agrees,
            }
            for v in verdicts
        ]
        report = {"jax": jax.__version__, "jaxlib": version("jaxlib"), "devices": rows}
        cache = str(folder) if folder else None
        show.print_json({**report, "agrees": not wrong, "compilation_cache": cache, "notes": notes})
    else:
        show.say(f"jax {jax.__version__}, jaxlib {version('jaxlib')}", "")
        columns = (
            show.Column("device", left=True),
            show.Column("numbers", left=True),
            show.Column("rows"),
            show.Column("worst error", "relative"),
            show.Column("allowed", "relative"),
            show.Column("agrees", left=True),
        )
        cells = [
            (
                v.device,
                v.dtype,
                str(v.rows),
                f"{v.worst:.1e}",
                f"{ALLOWED[v.dtype]:.0e}",
                "yes" if v.agrees else "NO",
            )
            for v in verdicts
        ]
        show.table(columns, cells)
        place = folder or "no folder: none is writable by this user alone"
        show.notes([*notes, f"Compiled programs are kept in {place}."])
    if wrong:
        raise typer.Exit(1)
