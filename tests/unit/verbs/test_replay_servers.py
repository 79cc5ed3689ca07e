"""``ij.replay`` beyond one server: drafts, two pools, copies, and prompts that begin alike."""

from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.errors import InputError
from infer_jax.results.problems import from_command

from .test_replay import CLOSED, DRAFTED, DRAWN, OPEN, SERVER, SIZES, SPLIT, TRACE

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


def test_cached_prefixes_are_those_of_the_trace_and_are_not_computed():
    file = TRACE.with_name("mooncake.jsonl")
    hit = ij.replay(*SERVER, trace=file, **SIZES)
    # nothing, two hashes of 512 again, nothing, and the 93 full blocks of 16 tokens of a prompt
    table = hit.to_pandas()
    assert table.cached_tokens.tolist() == [0, 1024, 0, 1488]
    assert hit.to_dict()["cached_prompt_percent"] == pytest.approx(100 * 2512 / 5600)
    assert "enable_prefix_caching=False: none is." in " ".join(str(hit).split())
    off = ij.replay(*SERVER, trace=file, enable_prefix_caching=False, **SIZES)
    assert "as with enable_prefix_caching=False" in " ".join(str(off).split())
    missed = off.to_pandas()
    assert not missed.cached_tokens.any()
    assert table.ttft_ms[0] == pytest.approx(missed.ttft_ms[0], rel=1e-9)
    # one pass of 12 tokens and not three of 512; network and tokeniser are in both
    front = 1e3 * hit.server.front
    assert table.ttft_ms[3] - front < 0.4 * (missed.ttft_ms[3] - front)
    with pytest.raises(InputError, match=r"enable_prefix_caching is 'yes'; allowed: with prefix"):
        ij.replay(*SERVER, trace=TRACE, enable_prefix_caching=True, **SIZES)


def test_a_prefix_that_all_prompts_share_is_computed_once(tmp_path):
    """Of 3 prompts in turn the second and third find it, and its blocks stay when they end."""
    asked: dict[str, Any] = {
        "concurrency": 1, "prompts": 3, "isl": 100, "osl": 2, "prefix_len": 512,
    }  # fmt: skip
    run = ij.replay(*SERVER, enable_prefix_caching=True, out=tmp_path / "a.png", **asked, **SIZES)
    table, said = run.to_pandas(), run.to_dict()
    assert table.isl_tokens.tolist() == [612] * 3
    assert table.cached_tokens.tolist() == [0, 512, 512]
    assert said["prefix_tokens"] == 512 and said["prefixes"] == 1
    # when the last has its last token: the 6 full blocks of each other behind the 32 they share
    kept = np.asarray(run.runs[0].series[0].kept) * float(run.server.rules.blocks)
    assert round(kept[-1]) == 12
    assert isinstance(said["cache_kept_mean_percent"], float)
    assert "before them 512 that all prompts share" in str(run)
    # whose turn it is is drawn, by another seed otherwise
    several = {"num_prefixes": 3, "enable_prefix_caching": True, **asked, **SIZES}
    assert ij.replay(*SERVER, **several).to_pandas().cached_tokens.tolist() == [0] * 3
    with pytest.raises(InputError, match=r"prefix_len is 9; allowed: trace or lengths"):
        ij.replay(*SERVER, trace=TRACE, prefix_len=9, **SIZES)


@pytest.mark.parametrize(("engine", "page", "alone"), [("sglang", 1, 102), ("trtllm", 32, 4)])
def test_prompts_are_looked_up_by_the_rules_of_each_engine(engine, page, alone):
    """SGLang's tree finds tokens, TensorRT-LLM's pool blocks of 32; what requests leave is kept.

    Each of 600 tokens in and 2 out shares 500. SGLang decodes once more before it knows of the end:
    602 tokens. TensorRT-LLM has 601 in 19 blocks, of which 15 are shared.
    """
    asked: dict[str, Any] = {"concurrency": 1, "prompts": 3, "isl": 100, "osl": 2, **SIZES}
    asked |= {"prefix_len": 500, "enable_prefix_caching": True, "engine": engine}
    asked |= {"max_num_batched_tokens": 1024}
    run = ij.replay(*SERVER, **asked)
    found = 500 // page * page
    assert run.to_pandas().cached_tokens.tolist() == [0, found, found]
    # when the last has its last token, what the two before it have alone
    kept = np.asarray(run.runs[0].series[0].kept) * float(run.server.rules.blocks)
    assert round(kept[-1]) == 2 * alone


def test_blocks_that_leave_the_cache_go_to_host_memory():
    asked: dict[str, Any] = {
        "concurrency": 1, "prompts": 3, "isl": 100, "osl": 2, "prefix_len": 512,
    }  # fmt: skip
    asked |= {"enable_prefix_caching": True, "kv_offloading_size": 1, **SIZES}
    run = ij.replay(*SERVER, **asked, set="hardware.host.link_bandwidth=64e9")
    # 16 tokens, K and V of 32 layers, 8 heads of 128 in 2 bytes
    rules, each = run.server.rules, 16 * 2 * 32 * 8 * 128 * 2
    assert float(rules.host) == 2**30 // each
    assert float(rules.fetch) == pytest.approx(each / 64e9)
    assert run.to_dict()["host_blocks"] == 2**30 // each and "in host memory" in str(run)
    # 16 GPUs copy each of 8 KV heads once, and each brings back its own
    wide = ij.replay(*SERVER, **{**asked, "tp": 16}, set="hardware.host.link_bandwidth=64e9")
    assert float(wide.server.rules.host) == 2**30 // (2 * each)
    assert float(wide.server.rules.fetch) == pytest.approx(each / 8 / 64e9)
    with pytest.raises(InputError, match="a system with a link to its host, not h100_sxm"):
        ij.replay(*SERVER, **asked)
    with pytest.raises(InputError, match="allowed: with enable_prefix_caching"):
        ij.replay(*SERVER, **{**asked, "enable_prefix_caching": False})
