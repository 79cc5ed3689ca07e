"""What is cited is well formed and the same in both files; points of others beside ours."""

import json
import math
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import infer_jax
from experiments import _claims
from experiments._columns import Output
from experiments.economics import app
from infer_jax.estimators.registry import VARIANTS

ROOT = Path(infer_jax.__file__).parents[1]
ENTRY = re.compile(r"@(\w+)\{(\w+),\n(.*?)\n\}(?=\n|$)", re.DOTALL)
FIELD = re.compile(r"^ {2}(\w+) = \{(.*)\},?$", re.DOTALL)


def entries() -> dict[str, dict[str, str]]:
    """Key to fields of every entry, each field in balanced braces."""
    result = {}
    for _, key, body in ENTRY.findall(infer_jax.citation()):
        fields = [FIELD.match(text) for text in re.split(r",\n(?= {2}\w+ = )", body)]
        assert key not in result and all(x and x[2].count("{") == x[2].count("}") for x in fields)
        result[key] = {x[1]: " ".join(x[2].split()) for x in fields if x}
    return result


def test_the_library_and_five_works():
    result = entries()
    assert len(result) == infer_jax.citation().count("@") == 6
    assert all(fields["title"] for fields in result.values())
    # a work is found by its number or its address
    works = list(result.values())[1:]
    assert all({"eprint", "url"} & set(fields) for fields in works)


def test_every_estimators_source_is_cited():
    numbers = {m[0] for v in VARIANTS.values() if (m := re.search(r"\d{4}\.\d{5}", v.source))}
    assert len(numbers) == 3
    assert numbers <= {fields.get("eprint") for fields in entries().values()}


@pytest.mark.skipif(not (ROOT / "CITATION.cff").exists(), reason="installed without the checkout")
def test_the_files_of_the_checkout_agree():
    yaml = pytest.importorskip("yaml")
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cff["version"] == project["version"] == infer_jax.__version__
    assert cff["license"] == project["license"]

    def plain(title: str) -> str:
        return re.sub(r"[{}\\]", "", title)

    ours, *works = entries().values()
    assert plain(ours["title"]) == cff["title"]
    assert [plain(w["title"]) for w in works] == [r["title"] for r in cff["references"]]


def test_the_notice_names_every_golden_file():
    """Figures of others stand under licences of others: which, for each file that holds some."""
    notice = ROOT / "NOTICE"
    if not notice.exists():
        pytest.skip("not a checkout")
    said = notice.read_text(encoding="utf-8")
    held = [*(ROOT / "tests/golden").iterdir(), *(ROOT / "infer_jax/catalog/golden").iterdir()]
    held += [*(ROOT / "infer_jax/catalog/published").glob("*.toml")]
    figures = [path for path in held if path.is_dir() or path.suffix in (".csv", ".json", ".toml")]
    figures = [path for path in figures if not path.name.startswith(("_", "."))]
    assert len(figures) > 10
    for path in figures:
        assert path.name in said, path
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "NOTICE" in project["license-files"]


POINT = "estimator,model,gpu,n_gpu,batch,latency_s"
# 16-bit Llama 3 8B on one H100 at level 2: 8.03e9 parameters over 0.75 * 3.3e12 bytes/s, and
# four all-reduces of 6 us in each of 32 layers
PARAMETERS = 2 * 128256 * 4096 + 32 * (48 * 128 * 4096 + 32 * 128 * 4096 + 3 * 4096 * 14336)
SECONDS = 2 * PARAMETERS / (0.75 * 3.3e12) + 32 * 4 * 6e-6
# columns in another order, and one that nobody knows
RIGHT = f"latency_s, batch ,gpu,colour,n_gpu,model,estimator\n{SECONDS!r},1,H100,red,1,"
RIGHT += "Llama_3_8B,toy\ninf,1,H100,,1,GPT_4,toy\n1,1,H100,,1,GPT_9,toy\n1,1,abacus,,1,GPT_4,toy"
WRONG = f"{POINT}\ntoy,Llama_3_8B,H100,1,1,{SECONDS * 1.000001!r}\n"
SKIPPED = {"model 'GPT_9' is not the paper's": 1, "gpu 'abacus' is not the paper's": 1}


@pytest.mark.parametrize(
    ("text", "code"),
    [(RIGHT, 0), (WRONG, 1), (None, 2), ("", 2), ("estimator,latency_s\ntoy,1\n", 2),
     (f"{POINT}\ntoy,,,x,1,1", 2)],
)  # fmt: skip
def test_a_file_agrees_or_not_or_cannot_be_read(tmp_path, text, code):
    """The last line is JSON; what cannot be read is one sentence. Absent columns are assumed."""
    file = tmp_path / "points.csv"
    if text is not None:
        file.write_text(text)
    ran = CliRunner().invoke(app, ["check", str(file), "--json"])
    assert ran.exit_code == code
    if code == 2:
        assert ran.stdout == "" and ran.stderr.count("\n") == 1 and "points.csv: " in ran.stderr
        return
    last = json.loads(ran.stdout.splitlines()[-1])
    assert last["agrees"] == (code == 0) and last["disagreements"] == code
    if last["agrees"]:
        assert (last["rows"], last["compared"], last["skipped"]) == (4, 2, SKIPPED)
        assert last["worst_error"]["latency_s"] < 1e-14 and last["ignored_columns"] == ["colour"]


def test_unknown_tables_exit_2():
    said = "command line: table is '7'; allowed: 1, 2, 3, 4, 5, 6\n"
    assert CliRunner().invoke(app, ["tables", "7"]).stderr == said


@pytest.mark.parametrize(
    ("theirs", "ours", "error"), [(2.0, 3.0, 0.0), (2.0, 1.5, 0.25), (0.0, 0.0, 0.0)]
)
def test_what_must_be_reached_may_be_passed(theirs, ours, error):
    assert Output(least=True).error(theirs, ours) == error


@pytest.mark.parametrize(
    ("term", "value", "allowed"),
    [
        ("3 +- 2%", 3.05, True),
        ("3 +- 0.01", 3.05, False),
        ("2 .. 3", 3.0, True),
        ("< 2", 2.0, False),
        ("> 2", 2.5, True),
        ("= never", "ever", False),
        ("", math.nan, True),
        ("4 +- 25%", math.nan, False),
    ],
)
def test_a_term_allows_what_it_says(term, value, allowed):
    assert _claims.holds(term, value) is allowed
