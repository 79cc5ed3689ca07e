"""Runs the notebooks of docs/notebooks and writes them as .ipynb, with what their cells answer.

    python docs/notebooks.py                 # all four
    python docs/notebooks.py which_gpu

The source of a notebook is a Python file in cells that begin with `# %%`, text in cells that begin
with `# %% [markdown]`: Python runs it as a script, and git shows what changed. A cell answers what
it prints, and its last expression: a picture, a table, or the text of a result.
"""

import ast
import io
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from nbformat import NotebookNode, v4, write

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from pictures import small  # noqa: E402  # pyright: ignore[reportMissingImports]

FOLDER = HERE / "notebooks"
MARK, TEXT = "# %%", "# %% [markdown]"
DOTS = 140  # pixels an inch of a picture: 1,008 across
PYTHON = {
    "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
    "language_info": {"name": "python"},
}


class Cell(NamedTuple):
    """Text in Markdown, or code; ``line``: where it begins in the file."""

    is_text: bool
    source: str
    line: int


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


def run(cell: Cell, path: Path, names: dict[str, object]) -> tuple[str, Any]:
    """What a cell of code prints, and the value of its last expression."""
    tree = ast.parse(cell.source, str(path))
    ast.increment_lineno(tree, cell.line - 1)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out, value = io.StringIO(), None
    with redirect_stdout(out):
        exec(compile(tree, str(path), "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), str(path), "eval"), names)
    return out.getvalue(), value


def notebook(path: Path) -> NotebookNode:
    """The notebook of a Python file, its cells run in order in one namespace."""
    names: dict[str, object] = {"__name__": path.stem}
    made = []
    for i, cell in enumerate(cells(path)):
        if cell.is_text:
            made.append(v4.new_markdown_cell(cell.source, id=f"cell-{i}"))
            continue
        printed, value = run(cell, path, names)
        count = 1 + sum(one.cell_type == "code" for one in made)
        outputs = [v4.new_output("stream", name="stdout", text=printed)] if printed else []
        if value is not None:
            data = answer(value)
            outputs.append(v4.new_output("execute_result", data=data, execution_count=count))
        made.append(
            v4.new_code_cell(cell.source, id=f"cell-{i}", execution_count=count, outputs=outputs)
        )
    return v4.new_notebook(cells=made, metadata=PYTHON)


def answer(value: Any) -> dict[str, str]:
    """A value by MIME type: a picture with few colours, a table of pandas, or text."""
    if hasattr(value, "savefig"):
        with TemporaryDirectory() as base:
            large, stored = Path(base, "large.png"), Path(base, "small.png")
            value.savefig(large, dpi=DOTS)
            small(large, stored)
            picture = b64encode(stored.read_bytes()).decode()
        return {"text/plain": " ".join(value.get_suptitle().split()), "image/png": picture}
    if hasattr(value, "to_html"):
        return {"text/plain": value.to_string(), "text/html": value.to_html(border=0)}
    return {"text/plain": str(value)}


def main(names: list[str]) -> None:
    """Run and write the notebooks of these names, or all."""
    for path in sorted(FOLDER.glob("*.py")):
        if not names or path.stem in names:
            made, target = notebook(path), path.with_suffix(".ipynb")
            write(made, target)
            print(target, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
