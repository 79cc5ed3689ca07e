"""What is cited is well formed, of this version, and the same in both files."""

import re
import tomllib
from pathlib import Path

import pytest

import infer_jax
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
