"""``ij.replay`` beyond one server: drafts on each, two pools, and copies behind a router."""

from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.results.problems import from_command

from .test_replay import CLOSED, DRAFTED, DRAWN, OPEN, SERVER, SPLIT

MIXTURE = ("gpt-oss-20b", "h100_sxm")
PREFIXES = 8
ASKED: dict[str, Any] = {"prefix_len": 512, "num_prefixes": PREFIXES, "request_rate": 60, "dp": 3}
ASKED |= {"prompts": 60, "isl": 400, "osl": 40, "tp": 1, "router": "cache_aware"}


def test_drafts_yield_several_tokens_a_pass():
    with from_command():  # whose notes name options
        both, loaded = ij.replay(*SERVER, **OPEN, **DRAFTED), ij.replay(*SERVER, **OPEN)
    run, plain, fields = both.runs[0], loaded.runs[0], both.to_dict()
    # the same requests, with fewer and longer passes
    np.testing.assert_array_equal(run.prompt, plain.prompt)
    gaps = run.gaps
    assert gaps.count.sum() < 0.7 * (run.output - 1).sum()
    spent = (run.last - run.first).sum()
    assert (gaps.seconds * gaps.count).sum() == pytest.approx(spent, rel=1e-9)
    assert both.times["tpot"].values["mean"] < loaded.times["tpot"].values["mean"]
    assert both.times["itl"].values["p50"] > loaded.times["itl"].values["p50"]
    yields = (run.output - 1).sum() / gaps.count.sum()
    assert fields["tokens_per_pass"] == pytest.approx(yields) and 1.5 < yields < 2.4
    assert (both.energy or 0.0) > 0 and fields["drafts"] == 3
    assert "a pass verifies 3 drafts and one token more of each request" in " ".join(
        str(both).split()
    )


@pytest.mark.parametrize(
    ("server", "options"),
    [
        (SERVER, {**OPEN, "engine": "sglang", "max_num_seqs": None}),
        (MIXTURE, {**OPEN, "ep": 2}),
        (SERVER, {**CLOSED, **SPLIT, "tp": None}),
    ],
    ids=["sglang", "ranks", "pools"],
)
def test_drafts_elsewhere(server, options):
    """Tokens come some at once, and the gaps between them add up to what requests take."""
    both = ij.replay(*server, **options, **DRAFTED)
    run, yields = both.runs[0], both.to_dict()["tokens_per_pass"]
    assert isinstance(yields, float) and 1.5 < yields < 2.4
    assert run.gaps.count.sum() < 0.7 * (run.output - 1).sum()
    spent = (run.last - run.first).sum()
    assert (run.gaps.seconds * run.gaps.count).sum() == pytest.approx(spent, rel=1e-9)
    assert (both.energy or 0.0) > 0
    text = " ".join(str(both).split())
    assert "verifies 3 drafts and one token more of each request" in text
    if "decode_tp" in options:
        assert "A prompt's last token is computed again where it is decoded" in text
    assert float(both.server.rules.drafts) == 3
    assert float(both.server.rules.slots) == (48 if "engine" in options else 8)


def test_one_token_a_request_takes_no_pass_with_drafts():
    run = ij.replay(*SERVER, **{**OPEN, "osl": 1}, **DRAFTED)
    assert run.to_dict()["tokens_per_pass"] is None
    text = " ".join(str(run).split())
    assert "tokens per pass unknown" in text and "A pass yields" not in text


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


def test_prompts_that_begin_alike_go_to_one_copy():
    """Each prefix is computed once by all copies together; JSON says who had how many."""
    result = ij.replay(*SERVER, **ASKED, enable_prefix_caching=True)
    fields, run = result.to_dict(), result.runs[0]
    assert (run.cached == 0).sum() == PREFIXES
    assert fields["requests_routed"] == np.bincount(run.copy, minlength=3).tolist()
    assert (fields["router"], fields["copies"], fields["total_gpus"]) == ("cache_aware", 3, 3)
    assert len(run.series) == 3 and set(run.copy) == {0, 1, 2}
    said = " ".join(str(result).split())
    assert "requests of a copy" in said and "requests are routed by cache_aware" in said
