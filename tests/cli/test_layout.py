"""`infer-jax layout`: the winner, where it changes, and what is refused."""

import itertools

import pytest

import infer_jax as ij
from infer_jax.results import Table
from infer_jax.results.text import as_text
from tests.cli.running import answer, answered_once, as_command

ASKED = ("layout", "palm-540b-padded", "--hardware", "tpu_v4", "--total-gpus", "64")


def test_layout_tells_the_winner_and_where_it_changes():
    output = answer(*ASKED, "--batch", "512", "--phase", "prefill")
    assert (output["fastest"]["layout"], output["fastest"]["attention"]) == ("wg_xyz", "batch")
    times = [row["time_ms"] for row in output["layouts"] if row["feasible"]]
    assert times == sorted(times)
    runs = output["by_batch"]
    assert runs[0]["fastest"].startswith("ws_2d") and runs[-1]["fastest"].startswith("wg_")
    assert all(a["to"] < b["from"] for a, b in itertools.pairwise(runs))
    first = output["layouts"][0]
    assert max(first["terms"].values()) <= first["time_ms"] <= sum(first["terms"].values()) * 1.001
    assert first["memory_bytes"] <= first["memory_capacity_bytes"]


def test_the_verb_is_what_the_command_prints(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")  # as wide as a result prints without a terminal
    best = ij.layout("palm-540b-padded", "tpu_v4", total_gpus=64, batch=512)
    said, text = answered_once(*ASKED, "--batch", "512")
    assert {"schema": said["schema"], **as_command(best)[0]} == said
    assert as_command(best)[1].split() == text.split()
    assert [row["time_ms"] for row in best.rows()] == [row["time_ms"] for row in said["layouts"]]
    table = next(part for part in best.parts() if isinstance(part, Table))
    lines = as_text([table]).splitlines()
    heads = {word for column in table.columns for word in column.title.split()}
    assert heads <= {*lines[0].split(), *lines[1].split()}, "one table in 100 columns"
    with pytest.raises(ij.InputError, match=r"^layout: How many chips.* Give total_gpus"):
        ij.layout("palm-540b-padded", "tpu_v4")
