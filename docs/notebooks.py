"""Runs the notebooks of docs/notebooks and writes their pages, with what their cells answer.

    python docs/notebooks.py                 # all four
    python docs/notebooks.py which_gpu

A notebook is a Python file in cells that begin with `# %%`, text in cells that begin with
`# %% [markdown]`: VS Code, PyCharm, Spyder and Jupyter with jupytext open it as a notebook, Python
runs it as a script, and git shows what changed. A cell answers what it prints, and its last
expression: a picture, a table, or the text of a result.
"""

import ast
import io
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
FOLDER, PICTURES = HERE / "notebooks", HERE / "pictures" / "notebooks"
MARK, TEXT = "# %%", "# %% [markdown]"


class Cell(NamedTuple):
    """Text in Markdown, or code; ``line``: where it begins in the file."""

    is_text: bool
    source: str
    line: int


class Answered(NamedTuple):
    """A cell that has run: what it printed, and the value of its last expression."""

    cell: Cell
    printed: str = ""
    value: Any = None


def cells(path: Path) -> Iterator[Cell]:
    """The cells of a notebook, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    begins = [i for i, line in enumerate(lines) if line.startswith(MARK)]
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        body = lines[begin + 1 : end]
        is_text = lines[begin].startswith(TEXT)
        if is_text:
            body = [line.removeprefix("#").removeprefix(" ") for line in body]
        yield Cell(is_text, "\n".join(body).strip("\n"), begin + 2)


def run(path: Path) -> Iterator[Answered]:
    """Each cell with its answer, all in one namespace."""
    names: dict[str, object] = {"__name__": path.stem}
    for cell in cells(path):
        if cell.is_text:
            yield Answered(cell)
            continue
        tree = ast.parse(cell.source, str(path))
        ast.increment_lineno(tree, cell.line - 1)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        out, value = io.StringIO(), None
        with redirect_stdout(out):
            exec(compile(tree, str(path), "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), str(path), "eval"), names)
        yield Answered(cell, out.getvalue(), value)


def page(path: Path, pictures: Path) -> Iterator[str]:
    """The parts of a notebook's page; pictures are written to a folder beside its others."""
    drawn = 0
    for cell, printed, value in run(path):
        if cell.is_text:
            yield cell.source
            if not drawn and cell.source.startswith("# "):
                yield f"[`docs/notebooks/{path.name}`]({path.name}) is this page as a notebook."
            continue
        yield f"```python\n{cell.source}\n```"
        if hasattr(value, "savefig"):
            drawn += 1
            yield _picture(value, pictures / f"{path.stem}-{drawn}.png")
        elif value is not None:
            text = value.to_string() if hasattr(value, "to_string") else str(value)
            printed += f"{text}\n"
        if printed:
            yield f"```text\n{printed.strip(chr(10))}\n```"


def _picture(figure: Any, path: Path) -> str:
    from infer_jax.plots.style import save

    save(figure, path)
    title = " ".join(figure.get_suptitle().split())
    return f"![{title}](../pictures/notebooks/{path.name})"


def write(path: Path, small: Any) -> Path:
    """The page of a notebook beside it; ``small`` stores its pictures."""
    from tempfile import TemporaryDirectory

    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as base:
        parts = list(page(path, Path(base)))
        for drawn in Path(base).iterdir():
            small(drawn, PICTURES / drawn.name)
    target = path.with_suffix(".md")
    target.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return target


def main(names: list[str]) -> None:
    """Run and write the notebooks of these names, or all."""
    sys.path.insert(0, str(HERE))
    from pictures import small  # pyright: ignore[reportMissingImports]

    for path in sorted(FOLDER.glob("*.py")):
        if not names or path.stem in names:
            print(write(path, small), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
