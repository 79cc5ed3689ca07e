"""Every table, figure and case study in one run, and a page that shows what came out.

Each step is a process of its own, so that one that fails, or is killed, costs nothing but itself.
"""

import ast
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import typer

from experiments._report import KEPT, OUT, SHARED, door
from infer_jax.catalog.files import write_text
from infer_jax.compiling import cache_folder
from infer_jax.errors import InputError

HERE = Path(__file__).resolve().parent
GOLDEN, DATA = SHARED / "golden", SHARED / "data"
MAX_SECONDS = 1800.0  # seconds of one step
MEASURED = ("--tables", DATA / "infersim_bench", "--configs", DATA / "infersim_configs")


class Step(NamedTuple):
    """One command of an experiment; words that are paths must exist.

    ``draws``: takes the folder for its files. ``heavy``: only where ``--only`` names it.
    """

    experiment: str
    command: str = ""
    words: tuple[str | Path, ...] = ()
    draws: bool = False
    heavy: str = ""

    @property
    def name(self) -> str:
        """As ``--only`` and ``--skip`` know it: ``economics.tables``."""
        return f"{self.experiment}.{self.command}".rstrip(".")

    @property
    def lacks(self) -> list[Path]:
        """The files it needs and that are not there."""
        return [word for word in self.words if isinstance(word, Path) and not word.exists()]


STEPS = (
    Step("economics", "tables"),
    Step("economics", "claims"),
    Step("economics", "figures", draws=True),
    Step("economics", "check", (GOLDEN / "economics_points.csv",)),
    Step("economics", "fronts", (GOLDEN / "economics_fronts.json",)),
    Step("kernels", "tables", MEASURED),
    Step("kernels", "figures", MEASURED[:2], draws=True),
    Step("kernels", "check", (GOLDEN / "kernels_points.csv", *MEASURED)),
    Step("kernels", "fits", heavy="fits the curves of each system anew: minutes a system"),
    Step("offloading", "tables"),
    Step("offloading", "figures", draws=True),
    Step("offloading", "check", (GOLDEN / "offloading_policies.csv",)),
    Step("offloading", "check-search", (GOLDEN / "offloading_search.csv",)),
    Step("partitioning", "tables"),
    Step("partitioning", "claims"),
    Step("partitioning", "figures", draws=True),
    Step("chapter"),
    Step("replay_measured", "requests", ("--folder", DATA / "measured" / "llmservingsim")),
    Step("replay_measured", "rates", ("--file", DATA / "measured" / "open_loop_h100.csv")),
    Step("codesign", "elasticities"),
    Step("codesign", "cases", draws=True),
    Step("validation", "", ("--split", "groups"), heavy="a fit for each fold of measured rows"),
)


class Result(NamedTuple):
    """What a step left: its state, one sentence where it is not fine, text, pictures, seconds."""

    step: Step
    state: str
    why: str = ""
    text: str = ""
    pictures: tuple[Path, ...] = ()
    cpu: float = 0.0
    wall: float = 0.0

    @property
    def good(self) -> bool:
        """False where it failed, or where something that was compared does not agree."""
        return self.state not in ("failed", "disagrees")


app = typer.Typer(add_completion=False)


@app.command()
def every(
    only: Annotated[
        list[str] | None, typer.Option(help="An experiment, or one command: economics.figures.")
    ] = None,
    skip: Annotated[list[str] | None, typer.Option(help="The same, left out.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the page and the pictures.")] = OUT,
) -> None:
    """Rebuild every table, figure and case study, and write index.html.

    Exit code 0: all that ran agrees; 1: a step failed or disagrees, and the page says which.
    """
    results: list[Result] = []
    with door(), TemporaryDirectory() as shared:
        chosen = _chosen(only or [], skip or [])
        out = out.resolve()
        out.mkdir(parents=True, exist_ok=True)
        for step in chosen:
            print(f"{step.name:<24}", end=" ", flush=True)
            results.append(run(step, out, _shared(shared), with_heavy=bool(only)))
            last = results[-1]
            print(f"{last.state:<10} {last.cpu:6.1f} s CPU  {last.why}", flush=True)
            write_text(out / "index.html", page(results, out))
        print(out / "index.html")
    raise SystemExit(0 if all(result.good for result in results) else 1)


def _chosen(only: Sequence[str], skip: Sequence[str]) -> list[Step]:
    """The steps that are named, in order; all where none is."""
    known = {name for step in STEPS for name in (step.name, step.experiment)}
    for name in (*only, *skip):
        if name not in known:
            allowed = ", ".join(dict.fromkeys(step.experiment for step in STEPS))
            raise InputError("command line", "experiment", name, f"{allowed}; or one command of it")

    def is_named(step: Step, names: Sequence[str]) -> bool:
        return step.name in names or step.experiment in names

    left = [s for s in STEPS if (not only or is_named(s, only)) and not is_named(s, skip)]
    if not left:
        raise InputError("command line", "--skip", ", ".join(skip), "to leave something to run")
    return left


def run(step: Step, out: Path, world: dict[str, str], *, with_heavy: bool = True) -> Result:
    """One step in a process with its own environment ``world``; ``with_heavy``: heavy ones, too."""
    if step.heavy and not with_heavy:
        command = " ".join(("python -m experiments", step.experiment, step.command)).rstrip()
        return Result(step, "skipped", f"{step.heavy}; run `{command}`")
    if step.lacks:
        names = ", ".join(path.name for path in step.lacks)
        return Result(step, "skipped", f"no {names} in a folder named shared beside the checkout")
    command = [sys.executable, "-m", "experiments", step.experiment, step.command]
    words = [*command, *map(str, step.words), *(("--out", str(out)) if step.draws else ())]
    before, started = _cpu_seconds(), time.time()
    try:
        ran = subprocess.run(
            [word for word in words if word],
            cwd=HERE.parent,
            env=world,
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
        )
        code, text, errors = ran.returncode, ran.stdout, ran.stderr
    except subprocess.TimeoutExpired:
        code, text, errors = -1, "", f"not done in {MAX_SECONDS:g} s"
    cpu, wall = _cpu_seconds() - before, time.time() - started
    # files of this run: a file system may keep whole seconds only
    made = (p for p in sorted(out.rglob("*.png")) if p.stat().st_mtime >= int(started))
    pictures = tuple(p for p in made if step.draws)
    good = "drawn" if step.draws else "agrees"
    state = {0: good, 1: "disagrees" if "Traceback" not in errors else "failed"}.get(code, "failed")
    lines = errors.strip().splitlines()
    why = "" if state == good else (lines[-1] if lines else f"exit code {code}")
    return Result(step, state, why, text, pictures, cpu, wall)


def _shared(results: str) -> dict[str, str]:
    """The environment of the steps: what one draws or compiles, the next ones load."""
    programs = cache_folder()
    return os.environ | {
        **({"JAX_COMPILATION_CACHE_DIR": str(programs)} if programs else {}),
        KEPT: results,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # XLA reports an error on every program that it loads, without being in any
        "JAX_LOGGING_LEVEL": os.environ.get("JAX_LOGGING_LEVEL") or "CRITICAL",
    }


def _cpu_seconds() -> float:
    """CPU seconds of all processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _doc(experiment: str, command: str = "") -> str:
    """The first sentence that an experiment, or a command of it, says of itself."""
    if not command:
        tree = ast.parse((HERE / f"{experiment}.py").read_text(encoding="utf-8"))
        return (ast.get_docstring(tree) or "").split("\n\n")[0]
    for file in (experiment, "_claims"):  # the commands of claims are made in one place
        for node in ast.walk(ast.parse((HERE / f"{file}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == command.replace("-", "_"):
                return (ast.get_docstring(node) or "").split("\n\n")[0]
    return ""


STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;
color:#222;background:#fff}
h2{margin-top:3rem;border-bottom:1px solid #ccc}h3{margin:1.6rem 0 .2rem;font-size:1rem}
figure{margin:1rem 0}img{max-width:100%}figcaption,.why{color:#555}
pre{overflow-x:auto;font-size:.75rem;line-height:1.25;background:#f6f6f6;padding:.8rem}
table{border-collapse:collapse}td,th{padding:.15rem .8rem .15rem 0;text-align:left}
td.n{text-align:right;font-variant-numeric:tabular-nums}
.failed,.disagrees{font-weight:bold;text-decoration:underline}.skipped{color:#777}
"""


def page(results: Sequence[Result], out: Path) -> str:
    """The page of all that ran: a summary, then each experiment's pictures and tables."""
    bad = [result.step.name for result in results if not result.good]
    verdict = f"Not fine: {', '.join(bad)}." if bad else "Nothing failed or disagrees."
    total = sum(result.cpu for result in results)
    names = list(dict.fromkeys(result.step.experiment for result in results))
    sections = "".join(
        f'<h2 id="{escape(name)}">{escape(_doc(name))}</h2>'
        + "".join(_section(r, out) for r in results if r.step.experiment == name)
        for name in names
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Experiments</title>'
        f"<style>{STYLE}</style><h1>Experiments: published models and case studies</h1>"
        f"<p>{escape(verdict)} {len(results)} steps, {total:.0f} s of CPU.</p>"
        f"<table><tr><th>step<th>state<th>CPU s<th>of note</tr>{_summary(results)}</table>"
        f"{sections}</html>\n"
    )


def _summary(results: Sequence[Result]) -> str:
    return "".join(
        f'<tr><td><a href="#{escape(r.step.name)}">{escape(r.step.name)}</a>'
        f'<td class="{r.state}">{r.state}<td class="n">{r.cpu:.0f}'
        f'<td class="why">{escape(r.why)}</tr>'
        for r in results
    )


def _section(result: Result, out: Path) -> str:
    step = result.step
    about = _doc(step.experiment, step.command) if step.command else ""
    pictures = "".join(_figure(path, out) for path in result.pictures)
    text = "\n".join(_tables(result.text))
    shown = f"<details><summary>Tables</summary><pre>{escape(text)}</pre></details>" if text else ""
    return (
        f'<h3 id="{escape(step.name)}">{escape(step.name)}: '
        f'<span class="{result.state}">{result.state}</span></h3>'
        f'<p class="why">{escape(" ".join(about.split()))} {escape(result.why)}</p>'
        f"{pictures}{shown}"
    )


def _tables(text: str) -> Iterator[str]:
    """What was printed, less the lines that only name files and the last line of JSON."""
    for line in text.rstrip().splitlines():
        if line.endswith(".png") or (line.startswith("{") and _is_json(line)):
            continue
        yield line


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _figure(path: Path, out: Path) -> str:
    """A picture with the caption that it carries; see ``infer_jax.plots.style.save``."""
    from PIL import Image

    with Image.open(path) as image:
        caption = str(image.info.get("Description", ""))
    where = escape(path.relative_to(out).as_posix())
    return (
        f'<figure><img src="{where}" alt="{escape(caption)}"><figcaption>{escape(caption)}'
        f"</figcaption></figure>"
    )
