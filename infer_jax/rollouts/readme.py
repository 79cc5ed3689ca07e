"""The folder's README: what is in it, how it starts, what is missing."""

import re
from collections.abc import Mapping

from infer_jax.rollouts.bench import AIPERF, calibrate, calibrate_obstacle
from infer_jax.rollouts.rollout import Rollout
from infer_jax.rollouts.servers import servers
from infer_jax.rollouts.template import fill

COMMAND = re.compile(r"^# ((?:HOST|[.]/|docker |kubectl |helm ).*)$", re.MULTILINE)


def page(
    rollout: Rollout, texts: Mapping[str, str], kinds: Mapping[str, str], missing: Mapping[str, str]
) -> str:
    """The page.

    ``texts``, ``kinds``: each file, and what it is, by its name; ``missing``: why a target has no
    file, by its title.
    """
    engine, placed = rollout.serving, servers(rollout)
    launch, machines = engine.launch(rollout.service), 1 + max(x.machine for x in placed)
    by_hand = "\n\n".join(f"# {x.where}\n{x.command}" for x in launch.steps)
    gaps = [*rollout.gaps]
    if why := calibrate_obstacle(rollout):
        gaps.append(f"Runs for a calibration: {why}.")
    gaps += [f"{title}: {why}." for title, why in missing.items()]
    rows = [
        f"| {x.name} | {x.machine} | {', '.join(map(str, x.gpus))} | {'' if x.rank else x.port} |"
        for x in placed
    ]
    several = "s" if machines > 1 else ""
    promises = "\n".join(f"| {' | '.join(words)} |" for words in rollout.promises)
    values = {
        "title": rollout.title,
        "engine": f"{engine.title} {engine.version}",
        "promises": f"\n| the plan | limit | predicted |\n|---|---|---|\n{promises}"
        if promises
        else "",
        "install": _install(rollout),
        "start": "\n\n".join(filter(None, map(_start, texts, texts.values()))),
        "files": "\n".join(f"| `{name}` | {what} |" for name, what in kinds.items()),
        "servers": "\n".join(rows),
        "machines": f"{machines} machine{several} of {placed[0].instance.machine} GPUs",
        "commands": f"\n```sh\n{by_hand}\n```" if rollout.under_slurm else "",
        "notes": "\n".join(f"* {x[0].upper()}{x[1:]}" for x in notes(rollout)),
        "calibrate": calibrate(rollout) if rollout.measure else "",
        "lengths": f"{rollout.load.isl} tokens in and {rollout.load.osl} out",
        "gaps": "\n".join(f"* {gap}" for gap in gaps) or "Nothing that is known.",
    }
    return fill("README.md", values)


def _install(rollout: Rollout) -> str:
    """What to install where there are no containers."""
    if not rollout.packages:
        return "Without containers, install the engine and its router for this GPU first."
    first, words, own = rollout.service.instances[0], [rollout.packages], rollout.serving.packages
    if (first.role or first.copies > 1) and own.router:
        words.append(own.router)
    line = f"pip install {' '.join(words)}"
    if own.client == "aiperf":
        line += f"\n    pip install {AIPERF} # for bench.sh, in an environment of its own"
    return f"Without containers, first on every machine:\n\n    {line}"


def _start(name: str, text: str) -> str:
    """What to type to start a file, as its head says; "" where others read it."""
    lines = "\n".join(COMMAND.findall(text))
    return f"`{name}`:\n\n```sh\n{lines}\n```" if lines else ""


def notes(rollout: Rollout) -> list[str]:
    """What one who starts the servers should know."""
    load, first = rollout.service.checkpoint, rollout.service.instances[0]
    own = rollout.serving.packages
    lines = [
        *(f"{comment}." for comment in rollout.serving.launch(rollout.service).comments),
        f"Weights: https://huggingface.co/{load.repository}, with HF_TOKEN where it asks for one. "
        "Containers keep them in /root/.cache/huggingface: mount a volume there on Kubernetes.",
        f"The plan counts {rollout.prefix:g} tokens of a prompt as cached. Prefix caches are on in "
        "these versions without an option, where the model's layers keep caches of one kind.",
    ]
    if load.code:
        lines.append("The repository brings code of its own, which the servers run.")
    if first.role or first.copies > 1:
        pools = (
            f", or {' '.join(own.pool_command[:2])} before two pools" if own.pool_command else ""
        )
        lines.append(f"Router: {own.router or f'nginx{pools}'}.")
    together = rollout.serving.together(first, rollout.service)
    if together:
        lines.append(
            f"The command that `plan` prints starts these {first.copies} servers at once, by "
            f"`{' '.join(map(str, together))}`. Here each is a process of its own, and the router "
            "spreads the requests: the same plan, with the same GPUs and options."
        )
    if first.role:
        lines.append(f"Pools hand caches over by {own.transfer}, which the image has.")
    return lines
