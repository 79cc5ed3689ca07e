"""ServeGen's folders: clients whose rates add, whose bursts lie over each other; conversations.

Files are in the published format (github.com/alibaba/ServeGen, servegen/clientpool.py); their
numbers are made up, so that sums can be done by hand.
"""

import json

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.arrivals import LEVELS, draw, read_traffic
from infer_jax.catalog.traces import read_trace
from infer_jax.catalog.traffic_file import read_clients
from infer_jax.errors import InputError

FIRST = "0,2,3,Weibull,0.4,0.4\n600,0,0,,0,0\n1200,1,2,Gamma,0.25,4.0\n1800,1,2,Gamma,0.25,4.0\n"
SECOND = "0,6,1,Gamma,1,0.17\n600,6,1,Gamma,1,0.17\n1200,6,1,Gamma,1,0.17\n1800,6,1,Gamma,1,0.17\n"


def window(prompts, outputs):
    return {"input_tokens": prompts, "output_tokens": outputs}


def lengths(**windows):
    return json.dumps({begin.strip("_"): pair for begin, pair in windows.items()})


LENGTHS = (
    lengths(_0=window("{100: 0.5, 200: 0.5}", "{10: 1.0}"), _1200=window("{400: 1.0}", "{40: 1}")),
    lengths(_0=window("{}", "{}"), _600=window("{800: 1.0}", "{80: 2.5e-1, 90: 0.75}")),
)


@pytest.fixture
def folder(tmp_path):
    """A folder of two clients."""
    for i, (rows, shares) in enumerate(zip((FIRST, SECOND), LENGTHS, strict=True)):
        (tmp_path / f"chunk-{i}-trace.csv").write_text(rows)
        (tmp_path / f"chunk-{i}-dataset.json").write_text(shares)
    return tmp_path


def test_rates_add_and_bursts_and_lengths_weigh_by_requests(folder):
    clients = read_clients(folder)
    assert (clients.count, clients.damaged, clients.window) == (2, 0, 600.0)
    assert clients.rates.tolist() == [8.0, 6.0, 7.0, 7.0]
    traffic = read_traffic(folder, 1200.0)
    assert np.asarray(traffic.rates).tolist() == [7.0, 7.0] and float(traffic.period) == 1200.0
    # 2 x 9 + 2 x 1 x 4 + 4 x 6 x 1, of 28 requests/s of windows
    assert float(traffic.variability) == pytest.approx((18 + 8 + 24) / 28)
    # requests/s of prompts: 1 of 100, 1 of 200, 2 of 400, 18 of 800; the second client's first
    # window has no lengths
    assert clients.prompts == {100: 1.0, 200: 1.0, 400: 2.0, 800: 18.0}
    assert clients.outputs == {10: 2.0, 40: 2.0, 80: 4.5, 90: 13.5}
    at = dict(zip(LEVELS, np.asarray(traffic.prompts), strict=True))
    assert (at[0.0], at[0.05], at[0.1], at[0.2], at[1.0]) == (100, 200, 400, 800, 800)


@pytest.mark.parametrize(
    ("file", "change", "damaged"),
    [
        ("chunk-0-trace.csv", ("0,2,3,Weibull,0.4,0.4", "0,two,3,Weibull,0.4,0.4"), 1),
        ("chunk-0-trace.csv", ("0,2,3,Weibull", "0,2,3,Pareto"), 1),
        ("chunk-0-trace.csv", ("0,2,3,Weibull,0.4,0.4", "0,2,3"), 1),
        ("chunk-0-trace.csv", ("0,2,3", "0,nan,3"), 1),
        ("chunk-0-dataset.json", ("{100: 0.5, 200: 0.5}", "{100: 0.5, 200: 0.25}"), 1),
        ("chunk-0-dataset.json", ("{100: 0.5, 200: 0.5}", "{100: 0.5, 200}"), 1),
        ("chunk-0-dataset.json", ("{100: 0.5, 200: 0.5}", "__import__('os').getcwd()"), 1),
        ("chunk-0-dataset.json", (LENGTHS[0], "version https://git-lfs.github.com/spec/v1"), 1),
        ("chunk-1-dataset.json", (LENGTHS[1], "[]"), 1),
    ],
)
def test_what_is_damaged_is_counted_and_left_out(folder, file, change, damaged):
    place, whole = folder / file, read_clients(folder)
    place.write_text(place.read_text().replace(*change))
    clients = read_clients(folder)
    assert clients.damaged == damaged
    assert sum(clients.prompts.values()) < sum(whole.prompts.values())
    assert (clients.rates.sum() < whole.rates.sum()) == file.endswith(".csv")


def test_a_folder_without_clients_or_requests_is_refused(tmp_path, folder):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="no clients"):
        read_traffic(empty)
    (empty / "chunk-7-trace.csv").write_text("0,0,0,,0,0\n600,0,0,,0,0\n")
    with pytest.raises(InputError, match="no requests"):
        read_traffic(empty)
    (folder / "chunk-0-trace.csv").write_text(FIRST.replace("1800", "1900"))
    with pytest.raises(InputError, match="unequal"):
        read_traffic(folder)


def test_bursts_of_clients_are_those_of_their_superposition():
    """Gamma renewal processes side by side: variance over mean in windows of 1,000 s."""
    random, times = np.random.default_rng(0), []
    clients = ((2.0, 16.0), (5.0, 4.0), (10.0, 1.0))  # requests/s, squared variation of gaps
    seconds, window = 400_000.0, 1000.0
    for rate, varied in clients:
        gaps = random.gamma(1.0 / varied, varied / rate, int(1.2 * rate * seconds))
        times.append(np.cumsum(gaps))
        assert times[-1][-1] > seconds
    counts = np.histogram(np.concatenate(times), np.arange(0.0, seconds + 1.0, window))[0]
    law = sum(r * c for r, c in clients) / sum(r for r, _ in clients)
    assert counts.var() / counts.mean() == pytest.approx(law, rel=0.2)  # 400 windows: 7 %, one sd


def test_the_verb_describes_a_folder_and_draws_from_it(folder):
    found = ij.traffic(folder, period=600)
    facts = found.to_dict()
    assert facts["clients"] == 2 and facts["damaged_rows"] == 0
    assert facts["mean_rate_per_s"] == pytest.approx(7.0)
    drawn = draw(found.traffic, seed=3)
    assert len(drawn) == pytest.approx(7.0 * 2400, rel=0.06)
    assert set(np.unique(drawn.osl)) <= set(range(10, 91))


@pytest.mark.parametrize(
    ("name", "text", "sessions", "seconds"),
    [
        ("burst.csv", "Timestamp,Session ID,Model,Request tokens,Response tokens\n5,a,m,10,2\n"
         "7,b,m,10,2\n9,a,m,20,2\n", [0, 1, 0], [0, 2, 4]),
        ("plain.csv", "arrival_s,prompt_tokens,output_tokens,session\n1,5,5,x\n2,5,5,x\n", [0, 0],
         [0, 1]),
        ("dynamo.jsonl", "\n".join(
            json.dumps({"timestamp": t, "input_length": 5, "output_length": 2, "session_id": "q"})
            for t in (0, 3000)), [0, 0], [0, 3]),
        ("bailian.jsonl", "\n".join(
            json.dumps({"chat_id": chat, "parent_chat_id": parent, "timestamp": time,
                        "input_length": 40, "output_length": 2, "turn": 1, "hash_ids": [1, 2]})
            for chat, parent, time in ((7, -1, 1.0), (8, -1, 1.5), (9, 7, 4.0), (12, 9, 5.0))),
         [0, 1, 0, 0], [0, 0.5, 3, 4]),
    ],
)  # fmt: skip
def test_conversations_are_numbered(name, text, sessions, seconds, tmp_path):
    (tmp_path / name).write_text(text)
    trace = read_trace(tmp_path / name)
    assert trace.sessions.tolist() == sessions
    np.testing.assert_allclose(trace.arrivals, seconds)
    assert trace.block == (16 if trace.source == "bailian" else 512)


@pytest.mark.parametrize("name", ["d.jsonl", "d.csv"])
def test_a_batch_task_of_servegen_has_lengths_and_no_times(tmp_path, name):
    """Two requests of data/offline/trace_d.jsonl, as published."""
    names = ("request_id", "type", "input_length", "output_length")
    cells = ((0, "text", 61, 2370), (1, "text", 54, 2031))
    rows = [dict(zip(names, x, strict=True)) for x in cells]
    lines = [",".join(rows[0]), *(",".join(map(str, x.values())) for x in rows)]
    text = "\n".join(map(json.dumps, rows) if name.endswith("l") else lines)
    (tmp_path / name).write_text(text + "\n")
    trace = read_trace(tmp_path / name)
    assert trace.isl.tolist() == [61, 54] and trace.osl.tolist() == [2370, 2031]
    assert not len(trace.arrivals) and trace.source == "servegen offline"
