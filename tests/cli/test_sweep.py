"""`infer-jax sweep`: a file in, a file out, the same point again, and every mistake told."""

import json

import pytest

from tests.cli.running import answer, run

SPACE = """
feasible = "decode.feasible"
zip = [["plan.pp", "plan.dp"]]
[arch]
models = ["llama-3.1-8b", "llama-3.1-70b"]
quant = "fp8"
[hardware]
systems = ["h100_sxm", "h200_sxm"]
price = { linear = [2, 4, 3] }
[workload]
isl = 4096
osl = 512
batch = { log2 = [1, 64, 4] }
[plan]
tp = { values = [1, 2, 4, 8] }
pp = { values = [1, 2] }
dp = { values = [2, 1] }
[[where]]
product = ["plan.tp", "plan.pp", "plan.dp"]
at_most = 8
[keep]
pareto = ["speed", "cost"]
"""


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(SPACE)
    return path


def test_a_frontier_and_its_points_again(space):
    output = answer("sweep", "space.toml", "--out", "out.json")
    assert output["points"] == str(2 * 2 * 3 * 4 * 4 * 2)
    rows = output["rows"]
    assert {row["arch"] for row in rows} == {"llama-3.1-8b"}
    assert {row["hardware.price"] for row in rows} == {2.0}
    speeds = [row["speed"] for row in rows]
    assert speeds == sorted(speeds, reverse=True)
    assert [row["cost"] for row in rows] == sorted((r["cost"] for r in rows), reverse=True)
    body = json.loads((space.parent / "out.json").read_text())
    assert set(body["provenance"]["sources"]) == {"llama-3.1-8b", "llama-3.1-70b",
                                                  "h100_sxm", "h200_sxm"}  # fmt: skip
    assert body["columns"]["speed"] == {"unit": "tokens/s", "values": speeds}
    assert sorted(p.name for p in space.parent.iterdir()) == ["out.json", "space.toml"]
    # the estimate of one verb is the estimate of the other
    first = rows[0]
    words = ["--isl", "4096", "--osl", "512", "--batch", f"{first['workload.batch']:g}"]
    words += ["--tp", f"{first['plan.tp']:g}", "--pp", f"{first['plan.pp']:g}", "--quant", "fp8"]
    one = answer("estimate", first["arch"], "--hardware", first["hardware"], *words)
    assert one["tpot_ms"] == pytest.approx(1e3 * first["tpot"], rel=1e-9)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("quant", "quantt", "arch.quantt"),
        ("tp =", "tpp =", "plan.tpp"),
        ("tp = { values = [1, 2, 4, 8] }", "tp = { values = [] }", "plan.tp"),
        ("log2 = [1, 64, 4]", "log2 = [1, 64]", "workload.batch.log2"),
        ("log2 = [1, 64, 4]", "log2 = [0, 64, 4]", "workload.batch"),
        ('"h200_sxm"', '"h200_xm"', "h200_xm"),
        ("price = { linear = [2, 4, 3] }", "chip.memory_bandwidth = 0", "1e+08 to 1e+16"),
        ("price = { linear = [2, 4, 3] }", "chip.memory = { values = [1e3, 8e10] }", "1e+06 to"),
        ("product", "products", "where.products"),
        ("at_most = 8", "at_most = 0.5", "none of 384"),
        ('pareto = ["speed", "cost"]', 'pareto = ["speed", "costs"]', "costs"),
        ('pareto = ["speed", "cost"]', "", "keep"),
        ('feasible = "decode.feasible"', 'estimator = "economist"', "economist"),
        ("isl = 4096", "isl = true", "workload.isl"),
        ("isl = 4096", "isl = -1", "isl"),
        ("[keep]", "[kept]", "kept"),
    ],
)
def test_mistakes_in_the_file(space, old, new, named):
    space.write_text(SPACE.replace(old, new))
    ran = run("sweep", "space.toml", "--out", "out.json")
    assert ran.code == 2 and ran.out == "" and named in ran.err and ran.err.count("\n") == 1, ran
    assert "Traceback" not in ran.err


def test_nothing_is_overwritten(space):
    other = space.parent / "out.csv"
    other.write_text("mine")
    ran = run("sweep", "space.toml", "--out", "out.csv")
    assert ran.code == 2 and "not of this sweep" in ran.err and other.read_text() == "mine"
    ran = run("sweep", "space.toml", "--out", "none/out.csv")
    assert ran.code == 2 and "none/out.csv" in ran.err and "can be written" in ran.err
    ran = run("sweep", "space.toml", "--out", "out.xls")
    assert ran.code == 2 and ".parquet" in ran.err
    ran = run("sweep", "space.toml", "--at", "384")
    assert ran.code == 2 and "383" in ran.err


def test_stopped_it_says_how_to_go_on(space, monkeypatch):
    from infer_jax.sweeps.engine import Stopped

    def stopped(*_, checkpoint, **__):
        raise Stopped(5, 10, checkpoint, 15)

    monkeypatch.setattr("infer_jax.sweeps.start", stopped)
    ran = run("sweep", "space.toml", "--out", "out.json")
    assert ran.code == 143 and "5 of 10" in ran.err and "goes on from .out.json" in ran.err
    assert ran.err.count("\n") == 1 and not (space.parent / "out.json").exists()


def test_a_grid_that_nobody_can_wait_for(space):
    many = "{ integers = [1, 200000] }"
    text = SPACE.replace("batch = { log2 = [1, 64, 4] }", f"batch = {many}\nprefix = {many}")
    space.write_text(text.replace("isl = 4096", f"isl = {many}"))
    ran = run("sweep", "space.toml", "--out", "out.json")
    assert ran.code == 2 and "at most 1e+15" in ran.err and ran.err.count("\n") == 1
