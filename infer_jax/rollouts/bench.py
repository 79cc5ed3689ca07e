"""The benchmark of a rollout: a script that runs a client at the plan's load and at others.

The other loads are of one instance: those that narrow what ``calibrate`` says most. Sources:
options of the clients from the wheels vllm 0.33.0 (vllm/benchmarks/serve.py and datasets/),
sglang 0.5.23 (sglang/benchmark/serving.py) and aiperf 0.13.0 (aiperf/config).
"""

import shlex

from infer_jax.rollouts.pods import address
from infer_jax.rollouts.rollout import Load, Rollout
from infer_jax.rollouts.servers import PYTHON, heads
from infer_jax.rollouts.template import fill

AIPERF = "aiperf==0.13.0"


def measurement(rollout: Rollout) -> dict[str, str]:
    """The script."""
    load, others = rollout.service.checkpoint, ""
    if rollout.measure:
        lines = [_run(f"one-{i}", "$instance", x) for i, x in enumerate(rollout.measure, 1)]
        lines = ["", "# one instance, at the loads that tell calibrate most", *lines]
        others = "\n".join([*lines, f"echo {shlex.quote(calibrate(rollout))}"])
    cached = f" {rollout.prefix:.0f}" if rollout.prefix >= 1.0 else ""
    named = zip(("TTFT", "TPOT"), rollout.expected, strict=False)
    times = ", ".join(f"{name} {x:.4g} ms" for name, x in named)
    values = {
        "title": rollout.title,
        "model": shlex.quote(load.repository),
        "port": str(heads(rollout)[0].port),
        "client": rollout.serving.packages.client,
        "code": "--trust-remote-code" if load.code else "",
        "expected": f", which predicts {times}" if times else "",
        "planned": _run("plan", "$url", rollout.load) + cached,
        "others": others,
    }
    return {"bench.sh": fill("bench.sh", values)}


def measurement_job(rollout: Rollout) -> dict[str, str] | str:
    """The script as a job of Kubernetes."""
    if rollout.under_slurm:
        return "there are no manifests of its servers"
    aiperf = rollout.serving.packages.client == "aiperf"
    values = {
        "title": rollout.title,
        "script": measurement(rollout)["bench.sh"],
        "image": PYTHON if aiperf else rollout.image or "IMAGE",
        "install": f"pip install --quiet {AIPERF} && " if aiperf else "",
        "address": address(heads(rollout)[0]),
    }
    return {"bench-job.yaml": fill("bench-job.yaml", values)}


def calibrate_obstacle(rollout: Rollout) -> str:
    """Why ``calibrate`` reads no run of the rollout; "" where it does."""
    first = rollout.service.instances[0]
    if first.role:
        return "calibrate reads no runs of two pools: measure one server of one pool"
    if first.drafts:
        return "calibrate reads no runs with drafts: measure a server without"
    return ""


def calibrate(rollout: Rollout) -> str:
    """The command that reads the runs of one instance."""
    one = rollout.service.instances[0]
    options = {"config": rollout.config, "hardware": rollout.systems[0], "engine": rollout.engine}
    options |= {"tp": one.tp}
    options |= {x: n for x, n in (("pp", one.pp), ("dp", one.groups), ("ep", one.ep)) if n > 1}
    forms = zip(("quant", "kv-dtype"), rollout.formats, strict=False)
    options |= {name: str(form) for name, form in forms if form}
    options |= {"max-num-seqs": one.group_requests}
    options |= {"max-num-batched-tokens": rollout.serving.budget(one, rollout.service)}
    options |= {"out": "my_server.toml"}
    words = [x for name, value in options.items() for x in (f"--{name}", str(value))]
    return " ".join(["infer-jax calibrate runs/one-*.json*", *map(shlex.quote, words)])


def _run(name: str, url: str, load: Load) -> str:
    kind = f"concurrency {load.concurrency}" if load.concurrency else f"rate {load.rate:g}"
    return f'run {name} "{url}" {load.isl} {load.osl} {load.prompts} {kind}'
