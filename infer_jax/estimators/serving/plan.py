"""The plan of a server: attention over tensor and data ranks, experts over all of them."""

import dataclasses

import jax.numpy as jnp
from jax import Array

from infer_jax.specs import UNBOUNDED, Plan, Spec, Workload, layout_label, number, part, spec

KERNELS = ("normal", "low_latency")


@spec
class WideExperts(Spec):
    """How the experts of a mixture are served on many ranks: exchange, copies, micro-batches."""

    kernels: Array = number(
        "kernels of DeepEP that hand tokens over, in the numbers that experts multiply: normal ones"
        " by node, low-latency ones by expert (SGLang's --deepep-mode, vLLM's --all2all-backend)",
        kind="choice",
        high=1,
        default=0.0,
        choices=KERNELS,
    )
    nodes: Array = number(
        "nodes that the experts of a token are on at most (node-limited routing); 4 of DeepSeek-V3",
        kind="count",
        low=1,
        default=UNBOUNDED,
    )
    copies: Array = number(
        "copies of popular experts in each layer (SGLang's --ep-num-redundant-experts)",
        kind="count",
        default=0.0,
    )
    two_batch: Array = number(
        "two micro-batches, one computing while the other's tokens go to experts and back"
        " (SGLang's --enable-two-batch-overlap, vLLM's --enable-dbo)",
        kind="choice",
        high=1,
        default=0.0,
        choices=("no", "yes"),
    )


@spec
class Deployment(Plan):
    """A plan of a server. One instance is tp x attention_dp x pp chips.

    Attention runs in ``attention_dp`` groups of ``tp`` ranks, each with its share of the
    requests. The tp x attention_dp chips form ``ep`` expert-parallel ranks, over which the experts
    of a layer are divided; each expert is sliced over the tp x attention_dp / ep chips of its rank.
    """

    attention_dp: Array = number(
        "data parallel groups of attention in one instance", kind="count", low=1, default=1.0
    )
    drafts: Array = number(
        "tokens drafted for a pass, by the model's own heads or by another model; 0: none",
        unit="tokens",
        kind="count",
        default=0.0,
    )
    chunk: Array = number(
        "prompt tokens of one pass at most (chunked prefill)",
        unit="tokens",
        kind="count",
        low=1,
        default=UNBOUNDED,
    )
    max_sequences: Array = number(
        "requests that one attention group runs at most, max_num_seqs",
        kind="count",
        low=1,
        default=UNBOUNDED,
    )
    block: Array = number(
        "tokens of a block of the paged cache; of its last one a request wastes half",
        unit="tokens",
        kind="count",
        low=1,
        default=16.0,
    )

    polling: Array = number(
        "passes from one look for new requests to the next, SGLang's scheduler-recv-interval",
        kind="count",
        low=1,
        default=1.0,
    )
    balance_timeout: Array = number(
        "passes that a prompt waits at most until each attention group has one, TensorRT-LLM's "
        "attention_dp_config.timeout_iters with enable_balance; 0: it waits for none",
        kind="count",
        default=0.0,
    )

    wide: WideExperts | None = part(
        "how experts on several nodes are served; none: tokens are exchanged by collectives",
        default_factory=lambda: None,
    )

    @property
    def instance(self) -> Array:
        """Chips of one instance: tp * attention_dp * pp."""
        return self.tp * self.attention_dp * self.pp

    @property
    def label(self) -> str:
        """The degrees of one instance in words, its chunk and drafts, as a plan prints them."""
        sizes = {"tp": self.tp, "dp": self.attention_dp, "ep": self.ep, "pp": self.pp}
        degrees = {name: float(x) for name, x in sizes.items()}
        return layout_label(degrees, chunk=float(self.chunk), drafts=float(self.drafts))


def deployment(plan: Plan) -> Deployment:
    """``plan`` as a deployment; a plain one has ``ep`` attention groups, tp x pp x ep chips."""
    return Deployment.widen(plan, attention_dp=plan.ep)


ANSWER = ("no", "yes")


@spec
class ServingWorkload(Workload):
    """A workload, with how its lengths were drawn and where its prefixes are cached."""

    fixed: Array = number(
        "1 where a benchmark gives every request the same lengths, so that they run in lock-step",
        kind="choice",
        high=1,
        default=0.0,
        choices=ANSWER,
    )
    nominal: Array = number(
        "1 where isl and osl are the largest of lengths drawn at random, not their means",
        kind="choice",
        high=1,
        default=0.0,
        choices=ANSWER,
    )
    waves: Array = number(
        "requests of a benchmark for each one in flight, of which the first all come at once;"
        " unbounded: a server that runs on",
        kind="count",
        low=1,
        default=UNBOUNDED,
    )
    common: Array = number(
        "share of the cached prompt that all requests have in common, held once",
        kind="fraction",
        high=1,
        default=0.0,
    )
    from_host: Array = number(
        "share of the cached prompt that is fetched from the host's memory",
        kind="fraction",
        high=1,
        default=0.0,
    )
    from_disk: Array = number(
        "share of the cached prompt that is fetched from disk",
        kind="fraction",
        high=1,
        default=0.0,
    )


def requests(workload: Workload) -> ServingWorkload:
    """``workload`` as a ``ServingWorkload``; by default its lengths are true means and differ."""
    if isinstance(workload, ServingWorkload):
        return workload
    given = {f.name: getattr(workload, f.name) for f in dataclasses.fields(Workload)}
    own = {f.name for f in dataclasses.fields(ServingWorkload)} - set(given)
    given |= dict.fromkeys(own, jnp.asarray(0.0)) | {"waves": jnp.asarray(UNBOUNDED)}
    return ServingWorkload(**given)
