"""`infer-jax layout`: the winner, and where it changes."""

import itertools

from tests.cli.running import answer

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
