"""``ij.replay`` of two pools: the way of a request through both, and what is refused."""

from typing import Any

import pytest

import infer_jax as ij
from tests.cli.running import answer, as_command

from .test_replay import CLOSED, DRAWN, SERVER, SPLIT


def test_a_request_alone_goes_through_two_pools():
    """Its prompt's pass, the cache over the link, the hand-over, then a pass for its last token."""
    few: dict[str, Any] = {k: x for k, x in DRAWN.items() if k not in ("tp", "range_ratio")}
    one = ij.replay(*SERVER, **few, **SPLIT, concurrency=1)
    single: dict[str, Any] = {**few, "osl": 1}
    alone = ij.replay(*SERVER, **single, tp=1, concurrency=1).times["ttft"].values["mean"]
    sent, link = 32 * 2 * 8 * 128 * 2 * 400, 0.8 * 450e9  # bytes of the cache, NVLink one way
    crossing = 0.07 + sent / link / 32  # all but one layer's behind the prompt's pass
    tpot = one.times["tpot"].values["mean"]
    # the pass of its last token is a prompt's, priced without logits and the host's work
    # on an output (`Laws.prompt_logits`)
    terms = ij.estimate(*SERVER, tp=2, isl=400, osl=40, batch=1).estimate.decode.terms
    output = sum(float(terms[name]) for name in ("head", "host", "elementwise"))
    first = alone + crossing + tpot - output
    assert one.times["ttft"].values["mean"] == pytest.approx(first, abs=5e-6)
    assert tpot == pytest.approx(
        ij.replay(*SERVER, **few, tp=2, concurrency=1).times["tpot"].values["mean"], rel=1e-3
    )
    fields = one.to_dict()
    assert fields["total_gpus"] == 4 and fields["prefill"] == {"tp": 1, "instances": 2}
    assert "2 x TP1 > 1 x TP2" in str(one) and len(one.runs[0].series) == 3


def test_two_pools_answer_what_their_command_prints():
    words = ["replay", SERVER[0], "--hardware", SERVER[1], "--concurrency", "6"]
    for name, x in ({**DRAWN, **SPLIT}).items():
        words += [f"--{name.replace('_', '-')}", str(x)] if name != "tp" else []
    both = ij.replay(*SERVER, **{**CLOSED, "tp": None}, **SPLIT)
    printed = answer(*words)
    assert as_command(both)[0] == printed
    gaps = both.runs[0].gaps
    assert gaps.count.sum() == pytest.approx((both.runs[0].output - 1).sum())
    assert both.energy is not None and both.energy > 0
