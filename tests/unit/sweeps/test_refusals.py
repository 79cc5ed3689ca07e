"""What a user gets wrong is one sentence that names it, and no sweep ranks what is refused."""

import dataclasses
import json
import os
import sys
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax import legal
from infer_jax.catalog import files, load_model, load_system
from infer_jax.catalog.measured_points import Calibration
from infer_jax.errors import InputError
from infer_jax.estimators import make
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps import (
    Axis,
    Constraint,
    Everything,
    Pareto,
    Space,
    TopK,
    legality,
    prepare,
    start,
    writers,
)
from tests.unit.sweeps.toy import Toy, arch, hardware, plan, sweep, workload


def small(keep=None, estimator=None, chunk=8, precision="float64", where=(), **fields):
    parts = {"arch": arch(), "hardware": hardware(), "workload": workload(), "plan": plan()}
    axes = fields.pop("axes", {})
    more = {name: fields.pop(name) for name in ("zips",) if name in fields}
    space = Space(**{**parts, **fields}, axes=axes, where=where, **more)
    return sweep(
        estimator or Toy.of(), space, keep or TopK(1, "cost"), chunk=chunk, precision=precision
    )


TP = Axis.values(1, 2)
CASES = {
    "unknown part": (lambda: small(axes={"plam.tp": TP}), "plam.tp", "estimator, arch"),
    "a part": (lambda: small(axes={"hardware.chip": TP}), "hardware.chip", "leaf"),
    "unread": (lambda: small(plan=plan(ep=TP)), "plan.ep", "cost"),
    "unread hardware": (
        lambda: small(axes={"hardware.power": Axis.linear(1, 2, 3)}), "hardware.power", "cost"),
    "empty axis": (lambda: Axis.values(), "empty", "one value"),
    "empty list": (lambda: small(hardware=[]), "empty", "one value"),
    "low bound": (lambda: small(plan=plan(tp=Axis.values(1, -2))), "plan.tp", "at least 0"),
    "not a number": (lambda: small(plan=plan(tp=Axis.values(1, "two"))), "two", "at least 0"),
    "no such per": (lambda: small(TopK(1, "cost", per="arch"), plan=plan(tp=TP)), "arch", "tp"),
    "zip lengths": (
        lambda: small(plan=plan(tp=TP, pp=Axis.values(1, 2, 3)), zips=[("plan.tp", "plan.pp")]),
        "plan.tp", "one length"),
    "one objective": (lambda: Pareto("cost"), "cost", "two or more"),
    "axis in a list": (lambda: small(hardware=[hardware().replace(price=TP)]), "list", "axes="),
    "log of 0": (lambda: Axis.log(0, 1, 5), "(0, 1)", "0 < low"),
    "half an integer": (lambda: Axis.integers(1, 5, -2), "-2", "whole"),
    "constraint": (lambda: Constraint(product=("plan.tp",)), "relation", "at_most"),
    "many structures": (
        lambda: small(arch=[arch(blocks=n) for n in range(1, 70)]), "69 structures", "at most 64"),
    "too large": (
        lambda: small(Everything("cost"), plan=plan(tp=Axis.integers(1, 3000)),
                      workload=workload(batch=Axis.integers(1, 3000))), "9000000", "Pareto"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_refused_in_one_sentence(case):
    work, value, allowed = CASES[case]
    with pytest.raises(InputError) as output:
        work()
    sentence = str(output.value)
    assert value in sentence and allowed in sentence.split("allowed:")[1] and "\n" not in sentence


def test_nan_everywhere():
    with pytest.raises(InputError, match="NaN everywhere"):
        small(plan=plan(tp=TP), estimator=Toy.of().replace(scale=np.float64(np.nan)),
              keep=TopK(1, "tpot"))  # fmt: skip


def test_an_outsized_frontier_stops_early_and_names_the_ways_out(monkeypatch):
    from infer_jax.sweeps import pareto

    batch = Axis.linear(1, 4, 400)
    space = Space(arch(), hardware(), workload(batch=batch, isl=batch), plan(tp=TP))
    keep = Pareto("ttft", "max throughput", "max workload.isl", capacity=16)
    seen = []
    monkeypatch.setattr(pareto, "MAX_ROWS", (2**20, 300))
    with pytest.raises(InputError, match=r"fewer objectives, limits.*coarser axis.*epsilon.*TopK"):
        sweep(Toy.of(), space, keep, chunk=256, progress=lambda p: seen.append(p.done))
    assert seen and seen[-1] < 2 * 400 * 400
    with pytest.raises(InputError, match="more than 100 rows"):
        sweep(Toy.of(), space, keep, memory=2000, chunk=256)


def test_spaces_and_results_are_short_to_read(monkeypatch):
    axis = Axis.integers(1, 4096)
    space = Space(arch(), [hardware(), hardware(2.0)], workload(batch=axis), plan(tp=axis))
    assert len(space) == space.size == 2 * 4096**2
    assert repr(space) == ("Space(33,554,432 points: hardware 2, workload.batch 4,096, "
                           "plan.tp 4,096)")  # fmt: skip
    result = small(plan=plan(tp=TP))
    assert repr(result).startswith("2 points, 2 feasible, ") and "1 kept." in repr(result)
    frames = types.SimpleNamespace(DataFrame=lambda x: types.SimpleNamespace(held=x, attrs={}))
    monkeypatch.setitem(sys.modules, "pandas", frames)
    frame = result.to_pandas()
    assert frame.held.keys() == result.columns.keys() and frame.attrs["units"]["cost"] == "USD/Mtok"
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"infer_jax\[pandas\]"):
        result.to_pandas()


def test_intervals_of_a_calibrated_profile_travel_on():
    ends = {"ttft_low": 0.9, "ttft_high": 1.3, "tpot_low": 0.8, "tpot_high": 1.1}
    plain = load_system("h100_sxm")
    own = Calibration("llama-3.1-8b", "bf16", ("TP1",))
    mine = dataclasses.replace(
        plain, name="mine", coefficients={"toy_bands": ends}, calibration=own
    )
    space = Space(load_model("mistral-7b"), mine, workload(), plan(tp=TP))
    assert "tpot_low80" not in sweep(Toy.of(), space, TopK(1, "cost")).columns
    space = Space(load_model("llama-3.1-8b"), [plain, mine], workload(), plan(tp=TP))
    result = sweep(Toy.of(), space, TopK(1, "cost", per="hardware"))
    columns = result.columns
    (own,) = np.flatnonzero(columns["hardware"] == "mine")
    assert columns["tpot_low80"][own] == 0.8 * columns["tpot"][own]
    assert columns["ttft_high80"][own] == 1.3 * columns["ttft"][own]
    assert np.isnan(columns["tpot_low80"][1 - own]) and result.units["tpot_low80"] == "s"
    space = Space(load_model("llama-3.1-8b"), plain, workload(), plan(tp=TP))
    assert "tpot" in str(sweep(Toy.of(), space, TopK(1, "tpot"))).split()  # what is asked for
    assert "tpot_low80" not in sweep(Toy.of(), space, TopK(1, "cost")).columns


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="files of POSIX")
@pytest.mark.parametrize("end", [".csv", ".json", ".parquet"])
def test_files_have_axes_units_and_provenance_and_replace_their_own_alone(tmp_path, end):
    if end == ".parquet":
        pytest.importorskip("pyarrow")
    system = load_system("h100_sxm")
    result = small(TopK(2, "cost"), hardware=system, plan=plan(tp=TP))
    path = tmp_path / f"out{end}"
    result.write(path)
    if end == ".csv":
        first, head, *rows = path.read_text().splitlines()
        facts, columns = json.loads(first[2:]), head.split(",")
        assert "cost [USD/Mtok]" in columns and "plan.tp [1]" in columns
        assert float(rows[0].split(",")[columns.index("plan.tp [1]")]) == 1.0
    elif end == ".json":
        body = json.loads(path.read_text())
        facts = body["provenance"]
        assert body["columns"]["tpot"]["unit"] == "s"
        assert body["columns"]["plan.tp"]["values"] == [1.0, 2.0]
    else:
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        facts = json.loads(table.schema.metadata[b"infer_jax"])
        assert table.schema.field("tpot [s]").metadata == {b"unit": b"s", b"name": b"tpot"}
        assert table.column("plan.tp [1]").to_pylist() == [1.0, 2.0]
    assert facts["precision"] == "float64" and facts["points"] == "2" and facts["fingerprint"]
    assert facts["estimator"] == ["Toy"] and facts["program"].startswith("infer_jax ")
    assert facts["sources"] == {"h100_sxm": system.sources}
    result.write(path)
    held = path.read_bytes()
    with pytest.raises(InputError, match="not of this sweep"):
        small(plan=plan(tp=Axis.values(1, 4))).write(path)
    assert path.read_bytes() == held
    os.mkfifo(tmp_path / f"x{end}")  # a pipe, which is not waited for
    with pytest.raises(InputError, match="not of this sweep"):
        writers.check(tmp_path / f"x{end}", "mark")


def test_damaged_checkpoints_are_refused(tmp_path):
    path = tmp_path / "c.npz"
    point = writers.Checkpoint(5, {"accepted": 1}, 0, 0, [np.arange(4.0)])
    writers.save(path, "mark", point)
    held = writers.load(path, "mark")
    assert held is not None and held.leaves[0].tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="another sweep"):
        writers.load(path, "other")
    whole = path.read_bytes()
    for damage in (whole[: len(whole) // 2], b"text", whole.replace(b"\x08@", b"\x09@"), b""):
        path.write_bytes(damage)
        with pytest.raises(InputError, match="damaged"):
            writers.load(path, "mark")


def test_a_checkpoint_of_another_sweep_is_refused(tmp_path):
    def run(first):
        grid = Space(arch(), hardware(), workload(), plan(tp=Axis.integers(first, 64)))
        ready = prepare(Toy.of(), grid, TopK(1, "cost"))
        return start(ready, chunk=8, checkpoint=tmp_path / "c.npz", every=0.0)

    assert run(1).index == run(1).index
    with pytest.raises(InputError, match="of another sweep"):
        run(2)


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "c.npz"
    point = writers.Checkpoint(5, {}, 0, 0, [np.arange(4.0)])
    writers.save(path, "mark", point)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError):
        writers.save(path, "mark", point._replace(position=9))
    held = writers.load(path, "mark")
    assert held is not None and held.position == 5
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]
    # and the sweep itself goes on, and says so
    space = Space(arch(), hardware(), workload(), plan(tp=Axis.integers(1, 64)))
    result = sweep(
        Toy.of(), space, TopK(1, "cost"), chunk=8, checkpoint=tmp_path / "d.npz", every=0.0
    )
    assert any("No space left" in note for note in result.notes) and len(result) == 1


def test_out_of_memory_halves_the_chunk(monkeypatch):
    import jax

    from infer_jax.sweeps import engine

    real, tried = engine.segment, []

    def scarce(program, *rest):
        tried.append(program.chunk)
        if program.chunk > 1024:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return real(program, *rest)

    monkeypatch.setattr(engine, "segment", scarce)
    result = small(plan=plan(tp=Axis.integers(1, 5000)), chunk=4096, keep=TopK(3, "cost"))
    assert tried[:3] == [4096, 2048, 1024]
    assert result.index == small(plan=plan(tp=Axis.integers(1, 5000)), chunk=512,
                                 keep=TopK(3, "cost")).index  # fmt: skip
    assert jnp.all(jnp.asarray(result.columns["cost"]) > 0)


def test_texts_of_a_table_are_no_formulas(tmp_path):
    """A name of others in a cell, which a spreadsheet would run; numbers stay as they are."""
    columns = {"model": np.array(["=1+1", "@SUM(A1)", "llama"]), "x": np.array([-1.5, 2.0, 3.0])}
    writers.write(tmp_path / "x.csv", columns, {"model": "", "x": "s"}, {})
    rows = (tmp_path / "x.csv").read_text().splitlines()[1:]
    assert rows == ["model,x [s]", "'=1+1,-1.5", "'@SUM(A1),2.0", "llama,3.0"]


SMALL, LARGE = load_model("llama-3.1-8b"), load_model("llama-3.1-70b")
CHIP = load_system("h200_sxm")


def space_of(models: Any = SMALL, work=None, plan=None, **more):
    base = Workload.of(isl=1024, osl=64, batch=4).replace(**(work or {}))
    return Space(models, CHIP, base, Plan.of().replace(**(plan or {})), **more)


def wide(low, high, tp):
    """Of one GPU or several, and feedforwards of two widths."""
    widths = {"arch.blocks.0.feedforward.width": Axis.values(low, high)}
    return {"plan": {"tp": Axis.values(1, tp)}, "axes": widths}


def prepared(**given):
    return prepare(make("economics.planned"), space_of(**given), TopK(1, "cost"))


@pytest.mark.parametrize(
    ("given", "named", "allowed"),
    [
        ({"plan": {"tp": Axis.values(1, 3.7)}}, "plan.tp is 3.7", "whole number"),
        ({"plan": {"tp": Axis.values(1, 1000)}}, "plan.tp is 1000", "divide the query heads"),
        ({"plan": {"pp": Axis.values(1, 1e9)}}, "plan.pp is 1000000000", "the 32 layers"),
        (wide(14336, 15360, tp=1000), "plan.tp is 1000", "divide the query heads"),
        (wide(1001, 1003, tp=8), "plan.tp", "of 1001 columns in whole columns, not in 8 slices"),
        ({"work": {"batch": Axis.values(0.001, 1)}}, "workload.batch is 0.001", "at least 1"),
        ({"work": {"prefix": Axis.values(0, 5000)}}, "workload.prefix is 5000", "at most isl"),
        ({"work": {"isl": Axis.values(1, 131072)}}, "workload.isl is 131072", "longest context"),
        ({"work": {"osl": Axis.values(1, 131072)}}, "workload.osl (for isl)", "longest context"),
        ({"plan": {"tp": np.float64(3.7), "pp": Axis.values(1, 2)}}, "plan.tp is '3.7'", "whole"),
    ],
)
def test_what_no_point_may_have_is_refused_at_the_door(given, named, allowed):
    with pytest.raises(InputError) as output:
        prepared(**given)
    assert named in str(output.value) and allowed in str(output.value).split("allowed:")[1]


def test_what_some_points_may_have_is_left_out_elsewhere():
    """Sixty-four ranks divide the heads of one model; a prefix of 900 fits one prompt of two."""
    tp = (1.0, 8.0, 64.0)
    isl, prefix = (512.0, 1024.0), (0.0, 900.0)
    grid = space_of(
        [SMALL, LARGE],
        {"isl": Axis.values(*isl), "prefix": Axis.values(*prefix)},
        {"tp": Axis.values(*tp)},
    )
    result = sweep(make("economics.planned"), grid, Everything("ttft"), chunk=8)
    columns = result.columns
    asked = {
        (m.name, i, p, t)
        for m in (SMALL, LARGE)
        for i in isl
        for p in prefix
        for t in tp
        if legal.holds(m.architecture, Plan.of(tp=t), Workload.of(isl=i, osl=64, prefix=p))
    }
    names = ("arch", "workload.isl", "workload.prefix", "plan.tp")
    kept = set(zip(*(columns[n].tolist() for n in names), strict=True))
    assert result.provenance["counts"]["accepted"] == str(len(asked)) == "15"
    assert kept <= asked and {k for k in asked if k[3] > 1} <= kept
    assert columns["ttft"].min() > 0


@pytest.mark.parametrize("entries", [legality.MAX_ENTRIES, 2])
def test_requests_beyond_the_longest_context_are_left_out(entries, monkeypatch):
    """By a table, and where that has too many entries by each point; of any estimator."""
    monkeypatch.setattr(legality, "MAX_ENTRIES", entries)
    axes = {"isl": Axis.values(1000, 131000), "osl": Axis.values(72, 100)}
    result = sweep(Toy.of(), space_of(work=axes, plan={"tp": 8}), Everything("ttft"), chunk=8)
    assert result.provenance["counts"]["accepted"] == "3"


def test_a_theory_that_splits_the_chips_itself_takes_any_number_of_them():
    grid = space_of(plan={"tp": Axis.linear(2.5, 40.25, 7)})
    assert prepare(Toy.of(), grid, TopK(1, "cost")).size == 7
