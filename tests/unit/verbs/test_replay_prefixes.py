"""``ij.replay`` with prompts that begin alike: what is found in the cache, and in host memory."""

from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.errors import InputError

from .test_replay import SERVER, SIZES, TRACE


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
