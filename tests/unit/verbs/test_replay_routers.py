"""``ij.replay`` with copies behind a router: who gets which request, and what is refused."""

from typing import Any

import numpy as np

import infer_jax as ij

SERVER = ("llama-3.1-8b", "h100_sxm")
PREFIXES = 8
ASKED: dict[str, Any] = {"prefix_len": 512, "num_prefixes": PREFIXES, "request_rate": 60, "dp": 3}
ASKED |= {"prompts": 60, "isl": 400, "osl": 40, "tp": 1, "router": "cache_aware"}


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
