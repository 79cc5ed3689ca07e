"""The rules of SGLang's scheduler, with its own defaults."""

from infer_jax.replays.prefill_first import PrefillFirst

RATIO, LEAST = 0.7, 0.14  # SGLANG_INIT_NEW_TOKEN_RATIO, SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR


def sglang(
    *,
    tokens: float,
    budget: float = 8192,
    slots: float | None = None,
    page: float = 1,
    conservativeness: float = 1.0,
    poll: float = 1.0,
    overlap: bool = True,
    drafts: float = 0,
) -> PrefillFirst:
    """SGLang: prompts first, room by an estimate of what running requests will need.

    The names are ``max_total_num_tokens``, ``chunked_prefill_size``, ``max_running_requests``,
    ``page_size``, ``schedule_conservativeness``, ``scheduler_recv_interval`` (which the engine
    counts for decode passes alone) and ``disable_overlap_schedule`` (false by default). Sources:
    sgl-project/sglang, python/sglang/srt/managers/schedule_policy.py at 00550cd and python/sglang/
    srt/environ.py (0.7, 0.14, 600, 20, 4096). Overlap: scheduler.py at 0003215,
    ``event_loop_overlap``, ``update_running_batch``: a pass is launched, then the one before it is
    waited for; a request that finishes meanwhile decodes once more, and the tokens of a request
    taken back that are on their way are thrown away (``is_retracted``). Cached prefixes are in
    ``radix_cache``. Left out: the orders of the queue that need them, mixed chunks,
    ``max_prefill_tokens`` beyond a chunk, priorities, the slot of a request that is known to have
    finished, which the engine counts until it decodes again, and of overlap that a request whose
    last token is on its way may be taken back, and is counted in the share set then. Drafts are a
    chain (``speculative_num_steps`` ``drafts``, ``speculative_eagle_topk`` 1,
    ``speculative_num_draft_tokens`` one more) of EAGLE, NEXTN or MTP:
    python/sglang/srt/mem_cache/allocation_sizing.py at 027bddf (2 (k + 1) tokens ahead of those
    read, ``get_alloc_reserve_per_decode``), schedule_batch.py (``new_tokens_required_next_decode``:
    k + 1 where passes do not overlap, the first version of speculation; ``retract_decode``: from
    the back of the batch) and server_args.py (48 requests where ``max_running_requests`` is not
    given). Left out of them: trees and lengths that adapt.

    >>> rules = sglang(tokens=100_000)
    >>> round(float(rules.ratio), 3), round(float(rules.least), 3)
    (0.7, 0.098)
    >>> float(sglang(tokens=100_000, drafts=3).slots)
    48.0
    """
    if slots is None:
        slots = 48 if drafts else 1024
    ratio = min(RATIO * conservativeness, 1.0)
    return PrefillFirst.of(
        budget=budget, slots=slots, blocks=tokens // page, block=page, poll=poll,
        unit=page, overlap=float(overlap), drafts=drafts, ratio=ratio,
        least=min(LEAST * ratio, 1.0),
    )  # fmt: skip
