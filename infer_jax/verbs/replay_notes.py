"""Sentences below a replay: what was replayed, what times hold, and what is not modelled."""

ERRORS = (
    "The estimator's errors are of its own means, not of replays, which were compared with "
    "measured servers of vLLM alone (docs/theories/scheduler.md)."
)
OVERLOADED = (
    "Overloaded: {} requests/s come, {} are completed, and {} of {} had no first token when the "
    "last one came. The queue grows without end: times are of this run, and longer in a longer one."
)
IN_TIMES = (
    "TTFT and latency are from a request's arrival and hold {} ms of network and tokeniser; TPOT "
    "is (latency - TTFT) / (osl - 1)."
)
RANKS = (
    "Each of {} attention ranks has a queue, slots and a cache of its own. All run their passes "
    "together, as long as the slowest rank's own part and the experts' work on the tokens of all; "
    "requests are routed by {} (--router)."
)
COPIES = (
    "Each copy has a queue and a clock of its own; requests are routed by {} (--router), which "
    "sees the copies as they are when a request comes."
)
GROUPS = (
    "A pass yields {:.2f} tokens in the mean, drawn for each request; the time between tokens is "
    "between passes, as clients of a stream measure it."
)
POOLS = (
    "Prompts are dealt to the prefill instances in turn, caches to those that decode; a cache goes "
    "layer by layer behind its prompt and is handed over after 0.07 s, alone on its link."
)
KEPT = (
    "A prompt that is admitted is looked up in the cache, of which requests share blocks, as "
    "engines do by themselves (--no-enable-prefix-caching: none is); the blocks that no request "
    "has used for longest are given up first."
)
UNCACHED = (
    "Prompts begin alike, and none is looked up in the cache, as with --no-enable-prefix-caching; "
    "with drafts or attention ranks this is not replayed."
)
FETCHED = (
    "Blocks that leave the cache go to host memory, {:,.0f} of them at most; the pass that admits "
    "a request first waits for those that are found there, {} ms each, and stores cost nothing."
)
CACHED = (
    "A prompt begins with what an earlier one left in the cache, in order of arrival "
    "(--no-enable-prefix-caching: none does); blocks not used for longest go first, and each "
    "request's cache counts its prefix as its own."
)
IN_FLIGHT = (
    "A request is sent as soon as another one has its last token; network and tokeniser are in its "
    "times and leave no slot idle."
)
HELD = (
    "A request that comes while {:g} are in flight is held back, and its times begin when it is "
    "sent, as `vllm bench serve --max-concurrency` counts them."
)
BURST = (
    "The first {0:g} requests are sent all at once and wait for each other; --warmup {0:g} leaves "
    "them out."
)
SEVERAL = "Numbers are means over {} runs of other random numbers, after ± their standard errors."
BATCHED = (
    "After ± is the standard error of a mean, by batches of successive requests; --seeds says it "
    "of percentiles, too."
)


def step_times(verified: str | None, *, pools: bool) -> str:
    """Whose step times passes have, what they verify (``verified``), and where prompts run."""
    drafts = "; no token is drafted" if verified is None else f": {verified}"
    where = ", and prefill and decode share the GPUs."
    if pools:
        where = (
            ". The pool that decodes computes a prompt's last token again and yields every token."
        )
    return f"Step times are the estimator's, by rules of the engine's scheduler{drafts}{where}"
