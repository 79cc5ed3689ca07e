"""``ij.replay(drafts=...)``: speculation by the rules of each engine, on ranks and in two pools."""

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.estimators.serving import Serving
from infer_jax.replays import GuaranteedNoEvict
from infer_jax.results.wording import from_command
from infer_jax.verbs.drafts import DraftOptions
from infer_jax.verbs.replay_requests import drafts_of
from infer_jax.verbs.replay_server import Sizes, server_of

from .test_replay import CLOSED, DRAFTED, OPEN, SERVER, SPLIT

MIXTURE = ("gpt-oss-20b", "h100_sxm")


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
        assert "that decodes. The pool" in text and "share the GPUs" not in text
    assert float(both.server.rules.drafts) == 3
    assert float(both.server.rules.slots) == (48 if "engine" in options else 8)


def test_one_token_a_request_takes_no_pass_with_drafts():
    run = ij.replay(*SERVER, **{**OPEN, "osl": 1}, **DRAFTED)
    assert run.to_dict()["tokens_per_pass"] is None
    text = " ".join(str(run).split())
    assert "tokens per pass unknown" in text and "A pass yields" not in text


def test_trtllm_counts_drafts_as_tokens_of_a_pass():
    model, system = ij.load_model(SERVER[0]), ij.load_system(SERVER[1])
    drafts = drafts_of(model, 3, DraftOptions(None, 0.7, True))
    estimator = ij.make("serving.trtllm", system.coefficients)
    assert isinstance(estimator, Serving)
    sizes = Sizes(budget=512)
    given = estimator, model.architecture, system.hardware, {"tp": 1.0}, sizes, 400.0
    server = server_of(*given, drafts)
    rules = server.rules
    assert isinstance(rules, GuaranteedNoEvict) and float(rules.drafts) == 3
    assert float(rules.slots) == 512 / 4
    none = server_of(*given)
    assert 1.0 < none.tokens / server.tokens < 1.1  # the heads are there, too
