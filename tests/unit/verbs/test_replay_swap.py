"""``ij.replay(preemption_mode="swap")``: preempted requests go to host memory and come back."""

from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.errors import InputError
from tests.cli.running import answered_once, as_command

SERVER = ("llama-3.1-8b", "h100_sxm")
LINK = "hardware.host.link_bandwidth=55e9"
# a cache of a few requests
ASKED: dict[str, Any] = {"tp": 1, "gpu_memory_utilization": 0.212, "max_num_seqs": 8}
ASKED |= {"max_num_batched_tokens": 512, "concurrency": 8, "prompts": 30, "isl": 400, "osl": 400}
SWAP: dict[str, Any] = {**ASKED, "preemption_mode": "swap", "set": LINK}


def words(asked: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in asked.items()]


def test_swaps_are_counted_and_printed():
    result = ij.replay(*SERVER, **SWAP, swap_space=0.25)
    run, fields = result.runs[0], result.to_dict()
    # 16 tokens, K and V of 32 layers, 8 heads of 128 in 2 bytes
    each = 16 * 2 * 32 * 8 * 128 * 2
    rules = result.server.rules
    assert float(rules.host) == fields["host_blocks"] == 2**28 // each
    assert float(rules.fetch) == pytest.approx(each / 55e9) and not float(rules.overlap)
    assert float(rules.watermark) == int(0.01 * float(rules.blocks))
    assert fields["swaps"] == run.swapped.sum() > 0
    assert np.all(run.swapped <= run.preempted)
    assert np.array_equal(result.to_pandas().swaps, run.swapped)
    printed, text = answered_once(
        "replay", SERVER[0], "--hardware", SERVER[1], *words(SWAP), "--swap-space=0.25"
    )
    assert printed == as_command(result)[0]
    assert "of these swapped out" in text and "come back before any" in " ".join(text.split())
    # swap space is of each GPU, and 4 GiB where nothing is said
    wide = ij.replay(*SERVER, **{**SWAP, "tp": 2}).server.rules
    assert float(wide.host) == 2 * 2**32 // each
    assert float(wide.fetch) == pytest.approx(each / 2 / 55e9)


def test_gpus_rest_while_passes_wait_for_blocks():
    """The same passes over a slower link: what that adds is time at rest, 80 of 700 W.

    It is more where passes would draw more than the board does, and are spread by the wait.
    """
    fast, slow = (
        ij.replay(*SERVER, **{**SWAP, "set": f"hardware.host.link_bandwidth={rate}"})
        for rate in (55e9, 55e8)
    )
    joules = [run.series[0].joules(0.0) for run in (fast.runs[0], slow.runs[0])]
    seconds = [run.series[0].time[-1] for run in (fast.runs[0], slow.runs[0])]
    assert np.array_equal(fast.runs[0].swapped, slow.runs[0].swapped)
    board = float(ij.load_system(SERVER[1]).hardware.power)
    watts = np.diff(joules)[0] / np.diff(seconds)[0]
    assert 80 / 700 * board * (1 - 1e-6) < watts < 0.25 * board


def test_a_preempted_request_is_computed_anew_where_nothing_is_said():
    modes: list[dict[str, Any]] = [{}, {"preemption_mode": "recompute"}]
    plain, said = (ij.replay(*SERVER, **ASKED, **mode) for mode in modes)
    assert plain.to_dict() == said.to_dict() and "swaps" not in plain.to_dict()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"preemption_mode": "other"},
            "preemption_mode is 'other'; allowed: one of recompute, swap",
        ),
        ({"preemption_mode": None, "swap_space": 2}, "allowed: with preemption_mode swap"),
        ({"swap_space": 0}, "swap_space is 0; allowed: a size above 0"),
        ({"set": None}, "a system with a link to its host, not h100_sxm"),
        ({"engine": "sglang"}, "those of sglang compute anew"),
        ({"async_scheduling": True}, "allowed: without async_scheduling"),
        ({"enable_prefix_caching": True, "prefix_len": 64}, "without enable_prefix_caching"),
        (
            {"drafts": 2, "acceptance": 0.5, "heads": False, "draft": "llama-3.2-1b"},
            "without drafts",
        ),
        ({"ep": 2}, "allowed: without ep"),
    ],
)
def test_what_does_not_go_with_swapping_is_refused(more, message):
    server = ("qwen3-30b-a3b" if "ep" in more else SERVER[0], SERVER[1])
    with pytest.raises(InputError, match=message):
        ij.replay(*server, **{**SWAP, **more})


def test_two_pools_do_not_swap():
    pools: dict[str, Any] = {
        "prefill_tp": 1,
        "prefill_instances": 1,
        "decode_tp": 1,
        "decode_instances": 1,
    }
    with pytest.raises(InputError, match="without two pools"):
        ij.replay(*SERVER, **{**SWAP, "tp": None, **pools})
