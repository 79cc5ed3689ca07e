"""`infer-jax estimate`: one configuration, with every term of its time."""

from infer_jax.cli import drafting, options as opt, show
from infer_jax.verbs.estimate import estimate as ask


def estimate(
    config: opt.Config,
    hardware: opt.HardwareName,
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    dp: opt.Dp = 1,  # pyright: ignore[reportArgumentType]
    total_gpus: opt.TotalGpus = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    isl: opt.SpreadIsl = None,
    osl: opt.SpreadOsl = None,
    prefix: opt.Prefix = 0,  # pyright: ignore[reportArgumentType]
    trace: opt.Trace = None,
    batch: opt.Batch = None,
    concurrency: opt.Concurrency = None,
    request_rate: opt.Rate = None,
    ttft: opt.Ttft = None,
    tpot: opt.Tpot = None,
    price: opt.Price = None,
    estimator: opt.EstimatorName = None,
    draft: drafting.Draft = None,
    acceptance: drafting.AcceptanceOrFile = None,
    heads: drafting.Heads = False,
    out: opt.Picture = None,
    set: opt.Set = None,  # the name of the option
    as_json: opt.Json = False,
) -> None:
    """What does one configuration answer: TTFT, TPOT, tokens/s, $/Mtok, and where time goes."""
    show.pictured(ask, locals())
