"""A plan as a folder that starts it; a target is a row of ``TARGETS`` and its ``templates``.

Every server's options are those of its engine (``engines``), as the page of a plan prints them.
"""

import os

from infer_jax.catalog.files import write_folder
from infer_jax.rollouts import machines, pods
from infer_jax.rollouts.bench import measurement, measurement_job
from infer_jax.rollouts.readme import page
from infer_jax.rollouts.rollout import Load as Load, Rollout as Rollout

TARGETS = {
    "Servers and router of a machine, without containers": machines.script,
    "Docker Compose": machines.compose,
    "Kubernetes": pods.kubernetes,
    "Helm values for llm-d": pods.llm_d,
    "Helm values for vLLM's production stack": pods.production_stack,
    "NVIDIA Dynamo's DynamoGraphDeployment": pods.dynamo,
    "Benchmark: the plan's load, and loads for `calibrate`": measurement,
    "The same as a Kubernetes job": measurement_job,
    "Settings that the servers read": lambda rollout: dict(rollout.files),
}


def folder(rollout: Rollout) -> tuple[dict[str, str], dict[str, str]]:
    """The files that start a rollout, and what each of them is, by their names.

    Raises:
        InputError: no engine starts the plan.
    """
    rollout = rollout.startable()
    texts, kinds, missing = dict[str, str](), dict[str, str](), dict[str, str]()
    for title, target in TARGETS.items():
        files = target(rollout)
        if isinstance(files, str):
            missing[title] = files
        else:
            texts |= files
            kinds |= dict.fromkeys(files, title)
    return {"README.md": page(rollout, texts, kinds, missing), **texts}, kinds


def write(rollout: Rollout, path: str | os.PathLike[str]) -> dict[str, str]:
    """Write the folder of a rollout, whole or not at all; what each file is is returned.

    Raises:
        InputError: no engine starts the plan, or the folder holds something.
    """
    texts, kinds = folder(rollout)
    write_folder(path, texts)
    return kinds
