"""Plans of every kind of server, and the folders that start them."""

from infer_jax.engines import Instance, LaunchedService, ModelCheckpoint
from infer_jax.rollouts import Load, Rollout, folder


def rollout(engine, *instances, systems=("h100_sxm",), **more):
    fields = ("experts", "heads", "draft")
    own = {name: more.pop(name) for name in fields if name in more}
    load = more.pop("checkpoint", ModelCheckpoint("Qwen/Qwen3-32B-FP8", cache="fp8"))
    served = LaunchedService(load, instances, 2000, 2300, **own)
    measure = more.pop("measure", (Load(2000, 300, 1), Load(1024, 1024, 64)))
    return Rollout(
        engine, served, systems, "qwen3-32b", "Qwen3's $plan", Load(2000, 300, rate=8.0),
        expected=(100.0, 20.0), measure=measure, **more,
    )  # fmt: skip


def pools(**more):
    prefill = {"tp": 4, "copies": 2, "requests": 2, "role": "prefill"}
    return Instance(**(prefill | more)), Instance(8, requests=64, role="decode")


PLANS = {
    "several": rollout("vllm", Instance(2, copies=6, requests=60)),
    "one, drafts": rollout("vllm", Instance(4, requests=60, drafts=2), heads=True),
    "drafter": rollout("sglang", Instance(4, requests=60, drafts=2), draft="a/b"),
    "wide": rollout("vllm", Instance(1, 16, 16, copies=2, requests=600), experts=True),
    "wide pools": rollout(
        "vllm", Instance(1, 16, 16, copies=2, requests=16, role="prefill"),
        Instance(1, 16, 16, requests=600, role="decode"), experts=True, measure=(),
    ),
    "stages": rollout("sglang", Instance(8, pp=2, copies=2, requests=60)),
    "vllm pools": rollout("vllm", *pools(), systems=("h100_sxm", "h200_sxm")),
    "sglang pools": rollout("sglang", *pools()),
    "trtllm pools": rollout("trtllm", *pools(copies=1)),
    "trtllm": rollout("trtllm", Instance(4, copies=3, requests=64)),
    "trtllm, machines": rollout("trtllm", Instance(1, 16, 16, requests=64), experts=True),
    "code": rollout("trtllm", Instance(8), checkpoint=ModelCheckpoint("a/b", code=True)),
    "amd": rollout("vllm", Instance(1, copies=8, requests=9, maker="AMD"), systems=("mi300x",)),
    "sglang amd": rollout("sglang", Instance(8, requests=9, maker="AMD"), systems=("mi300x",)),
    "cached": rollout("vllm", Instance(2, copies=2, requests=60), prefix=1000.0),
    "no weights": rollout(
        "vllm", Instance(8), checkpoint=ModelCheckpoint("", missing="none are known")
    ),
    "another engine": rollout("trtllm", Instance(8), checkpoint=ModelCheckpoint("a/b", cast="fp8")),
}  # fmt: skip
FOLDERS = {name: folder(plan)[0] for name, plan in PLANS.items()}
