"""The draw of mutations tells what tests notice from what they do not."""

from pathlib import Path

from tests.mutation import choose_tests, drawn, try_each

LAW = "def area(side):\n    return side * side\n\n\ndef edge(side):\n    return 4 * side\n"
TEST = "from infer_jax.toy import area\n\n\ndef test_area():\n    assert area(3) == 9\n"


def checkout(root: Path) -> None:
    """A package of two functions, of which one has a test."""
    files = {"infer_jax/__init__.py": "", "infer_jax/toy.py": LAW, "tests/unit/test_toy.py": TEST}
    for name, text in {**files, ".ci/run": ""}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_what_is_tested_is_killed_and_a_draw_carries_on(tmp_path):
    checkout(tmp_path)
    assert choose_tests("infer_jax/toy.py", tmp_path) == ["tests/unit/test_toy.py"]
    chosen, out = drawn(tmp_path, 9, 0), tmp_path / "out.jsonl"
    assert sorted((m.before, m.after) for m in chosen) == [
        ("4", "(5)"), ("4 * side", "(4 / side)"), ("side * side", "(side / side)"),
    ]  # fmt: skip
    results = try_each(chosen, tmp_path, out, 60.0)
    killed = {r["before"]: r["killer"] for r in results}
    assert killed["side * side"] == "tests/unit/test_toy.py::test_area"
    assert killed["4"] == killed["4 * side"] == ""
    assert (tmp_path / "infer_jax/toy.py").read_text() == LAW
    assert try_each(chosen, tmp_path, out, 0.0) == results
