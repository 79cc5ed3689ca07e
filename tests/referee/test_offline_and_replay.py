"""The law of offline work beside replays of the same server, all requests there at the start."""

import numpy as np
import pytest

from infer_jax.replays import Requests, serve
from infer_jax.servers.instance import Sizes
from infer_jax.verbs import inputs
from infer_jax.verbs.offline_jobs import job_lengths, offline_plans
from infer_jax.verbs.split import LayoutOptions
from infer_jax.verbs.texts import tokens

MODELS = ("llama-3.1-8b", "qwen3-32b", "qwen3-30b-a3b")
LONGEST = 8000.0  # tokens of a request, so that one prompt fits a pass of any engine


def sample(random, mean, ratio, count, most):
    sigma = np.sqrt(np.log1p(ratio**2))
    values = mean * np.exp(sigma * random.standard_normal(count) - sigma**2 / 2.0)
    return np.clip(np.round(values), 1.0, most)


def compared(random, engine, model, tp, isl, osl, count, slots, seeds):
    """Law over replay less 1, and the standard error of the replays' mean; (mean, spread) each."""
    setup = inputs.setup(model, "h100_sxm", "fp8", None, None)
    prompt, output = (tokens(f"{mean}±{round(mean * ratio)}", 1) for mean, ratio in (isl, osl))
    lengths, _ = job_lengths(prompt, output, None, LONGEST)
    pool = LayoutOptions.of(None, {"tp": tp}).pool
    layout = pool and pool.layout
    [plan] = offline_plans(setup, f"serving.{engine}", layout, Sizes(slots=slots), lengths)
    law, real = plan.job(count).makespan, []
    for _ in range(seeds):
        prompts = sample(random, isl[0], isl[1], count, LONGEST - 1.0)
        outputs = np.minimum(sample(random, osl[0], osl[1], count, LONGEST), LONGEST - prompts)
        log = serve(plan.server.step, plan.server.rules,
                    Requests.of(np.zeros(count), prompts, outputs))  # fmt: skip
        real.append(float(np.max(np.asarray(log.path.time)[: int(log.entries)])))
    return law / np.mean(real) - 1.0, np.std(real) / np.mean(real) / np.sqrt(seeds)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("engine", "model", "isl", "osl", "count", "slots"),
    [
        ("vllm", "llama-3.1-8b", (678, 0.0), (568, 0.0), 500, 16),  # equal: waves
        ("vllm", "qwen3-30b-a3b", (315, 1.0), (64, 0.3), 1299, 1024),  # more than slots
        ("vllm", "qwen3-32b", (2745, 0.5), (300, 0.3), 200, 256),  # short of cache
        ("sglang", "qwen3-32b", (188, 0.5), (360, 0.0), 199, 256),  # prompts first
        ("trtllm", "qwen3-32b", (258, 0.5), (78, 0.3), 500, 16),  # nobody makes room
    ],
)
def test_they_agree(engine, model, isl, osl, count, slots):
    found, error = compared(np.random.default_rng(0), engine, model, 1, isl, osl, count, slots, 4)
    assert abs(found) < 0.03 + 2.0 * error


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_they_agree_where_requests_outgrow_the_cache_many_times_over():
    """Prompts of 20 tokens, all of which start, and 3,000 of output, for 6,000 requests."""
    asked = "vllm", "qwen3-32b", 1, (20, 0.0), (3000, 0.0), 6000, 1024, 1
    found, _ = compared(np.random.default_rng(0), *asked)
    assert abs(found) < 0.05


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_they_agree_on_many_jobs():
    """Within 5 % and two standard errors; where replays are sure, half of them within 1 %."""
    random, off = np.random.default_rng(3), []
    for _ in range(60):
        engine = str(random.choice(["vllm", "vllm", "sglang", "trtllm"]))
        isl, osl = (int(np.exp(random.uniform(*np.log(x)))) for x in ((50, 4000), (20, 800)))
        spread = random.choice([0.0, 0.5, 1.0]), random.choice([0.0, 0.3, 1.0, 2.0])
        count = int(np.exp(random.uniform(*np.log((5, 5000)))))
        asked = str(random.choice(MODELS)), int(random.choice([1, 2]))
        slots = int(random.choice([16, 64, 256, 1024]))
        seeds = 40 if count < 200 else 12 if count < 1000 else 5
        lengths = (isl, spread[0]), (osl, spread[1])
        found, error = compared(random, engine, *asked, *lengths, count, slots, seeds)
        print(engine, *asked, *lengths, count, slots, f"{found:+.4f} {error:.4f}", flush=True)
        off.append((abs(found), error))
    found, error = np.transpose(off)
    assert np.mean(found < 0.05 + 2.0 * error) >= 0.95
    sure = found[error < 0.01]
    assert len(sure) >= 20 and np.mean(sure < 0.03) >= 0.95 and np.median(sure) < 0.01
