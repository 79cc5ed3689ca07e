"""Manifests of Kubernetes, and what starts the same pods by Helm charts and by NVIDIA Dynamo.

Pods of a stateful set have names that the router knows. An instance over several machines is a
LeaderWorkerSet, which has to be installed. Sources: the API of Kubernetes, apps/v1, batch/v1 and
v1 (kubernetes/kubernetes, api/openapi-spec/v3); leaderworkerset.x-k8s.io/v1 and its variables
LWS_LEADER_ADDRESS and LWS_WORKER_INDEX (docs.vllm.ai/en/latest/deployment/frameworks/lws.html);
llm-d-incubation/llm-d-modelservice, charts/llm-d-modelservice at v0.4.0 (values.yaml, templates/
_helpers.tpl: the command "custom" is passed on as it is; a decoding pod listens behind the proxy on
targetPort, one that prefills on servicePort) and llm-d's guide for SGLang (the proxy's connector);
vllm-project/production-stack, helm at chart 0.1.9 (values.yaml, templates/
deployment-vllm-multi.yaml and _helpers.tpl: host, port and prefix caching are the chart's own,
requests of CPU and memory are required); ai-dynamo/dynamo, examples/backends/{vllm,sglang,trtllm}/
deploy/v1beta1, and the wheel ai-dynamo 1.6.1 (dynamo/{vllm,sglang,trtllm}/backend_args.py).
"""

import json

from infer_jax.engines import ENGINES, Instance
from infer_jax.engines.launches import Shell
from infer_jax.rollouts.rollout import Rollout
from infer_jax.rollouts.servers import (
    FOLDER,
    FRONT,
    Process,
    command,
    heads,
    router,
    router_container,
    router_files,
)
from infer_jax.rollouts.template import blocks, fill, items

BEHIND = 8200  # targetPort of llm-d's proxy in pods that decode
POD_IP = "  valueFrom:\n    fieldRef:\n      fieldPath: status.podIP"
DYNAMO = "1.6.1"
Files = dict[str, str] | str  # files by their names, or in a sentence why there are none


def kubernetes(rollout: Rollout) -> Files:
    """The manifests of servers and router."""
    if rollout.under_slurm:
        title = rollout.serving.title
        return f"it starts no instance of {title} over several machines; Dynamo's file does"
    objects, front = "", "server"
    probes = fill("kubernetes-probes.yaml", {})
    for one in rollout.service.instances:
        values = pod(rollout, one)
        own = {"label": values["name"], "probes": probes}
        values["leader"] = fill("kubernetes-pod.yaml", values | own)
        kind = "kubernetes-set.yaml"
        if values["size"] != 1:
            own = {"label": f"{values['name']}-other", "probes": ""}
            values["worker"] = fill("kubernetes-pod.yaml", pod(rollout, one, rank=1) | own)
            kind = "kubernetes-group.yaml"
        objects += fill(kind, values)
    if router(rollout, address):
        image, words = router_container(rollout, address)
        objects += fill("kubernetes-router.yaml", {"image": image, "command": items(words)})
        front = "router"
    files = blocks({**rollout.files, **router_files(rollout, address)})
    values = {"title": rollout.title, "titled": json.dumps(rollout.title), "files": files}
    values |= {"front": front, "objects": objects}
    return {"kubernetes.yaml": fill("kubernetes.yaml", values)}


def llm_d(rollout: Rollout) -> Files:
    """Values of llm-d-modelservice."""
    connector = rollout.serving.packages.llm_d
    if not connector:
        known = (engine.title for engine in ENGINES.values() if engine.packages.llm_d)
        return f"it starts {' and '.join(known)}"
    if rollout.spread:
        return "its chart has one command for all machines of an instance; kubernetes.yaml has two"
    pools, instances = "", rollout.service.instances
    for one in instances:
        values = pod(rollout, one, BEHIND if one.role == "decode" else FRONT)
        variables = str(values["variables"]).replace("\n", "\n  ")
        values |= {"key": one.role or "decode", "tp": one.tp * one.pp, "groups": one.groups}
        values |= {"env": f"env:\n  {variables}" if variables else ""}
        pools += fill("llm-d-pool.yaml", values)
    if len(instances) == 1:
        pools += "prefill:\n  create: false\n"
    values = {
        "title": rollout.title,
        "model": json.dumps(rollout.service.checkpoint.repository),
        "accelerator": "amd" if instances[0].maker == "AMD" else "nvidia",
        "proxy": json.dumps(len(instances) > 1),
        "connector": connector,
        "pools": pools,
    }
    return {"llm-d-values.yaml": fill("llm-d.yaml", values)}


def production_stack(rollout: Rollout) -> Files:
    """Values of vLLM's production stack: one kind of instance, each in one machine."""
    one, serving = rollout.service.instances[0], rollout.serving
    if rollout.engine != "vllm":
        return "it starts vLLM"
    if one.role:
        return "its pools hand caches over by LMCache, not by the plan's NixlConnector"
    if rollout.spread:
        return "it spreads an instance over machines by Ray"
    _, tp, *options = serving.flags(one._replace(copies=1), rollout.service)
    values = pod(rollout, one)
    values["repository"], _, values["tag"] = str(values["image"]).rpartition(":")
    values |= {
        "title": rollout.title,
        "model": json.dumps(rollout.service.checkpoint.repository),
        "cores": one.gpus + 1,  # one for each worker and one for the API server
        "tp": tp,
        "options": items(options),
        "policy": "prefixaware" if rollout.prefix > 0.0 else "roundrobin",
    }
    return {"production-stack-values.yaml": fill("production-stack.yaml", values)}


def dynamo(rollout: Rollout) -> Files:
    """The DynamoGraphDeployment, after the settings that its workers read."""
    if rollout.service.instances[0].maker == "AMD":
        return "its images are for NVIDIA GPUs"
    if rollout.serving.packages.dynamo is None:
        return f"it has no image of {rollout.serving.title}"
    runtime, inside = rollout.serving.packages.dynamo
    image, workers = f"nvcr.io/nvidia/ai-dynamo/{runtime}:{DYNAMO}", ""
    for one in rollout.service.instances:
        values = pod(rollout, one)
        line = ["python3", "-m", f"dynamo.{rollout.engine}", *_dynamo_options(rollout, one)]
        own = {"image": image, "command": items(line), "name": one.role or "worker"}
        several = f"multinode:\n  nodeCount: {values['size']}"
        own["multinode"] = several if values["size"] != 1 else ""
        workers += fill("dynamo-worker.yaml", values | own)
    values = {
        "title": rollout.title,
        "titled": json.dumps(rollout.title),
        "version": f"{DYNAMO}, with {inside}",
        "files": blocks(rollout.files),
        "engine": rollout.engine,
        "image": image,
        "workers": workers,
    }
    return {"dynamo.yaml": fill("dynamo.yaml", values)}


def pod(rollout: Rollout, one: Instance, port: int = FRONT, rank: int = 0) -> dict[str, object]:
    """What templates say of the pods of an instance; ``rank``: 0, or 1 for the other machines."""
    first = next(x for x in heads(rollout) if x.instance == one)
    server = first._replace(number=0, port=port, rank=rank)
    variables, words = command(rollout, server, "HOST", Shell("$(LWS_WORKER_INDEX)") if rank else 0)
    line = [x.strip('"') if isinstance(x, Shell) else str(x) for x in words]
    own = {x: POD_IP if text == "HOST" else f'  value: "{text}"' for x, text in variables.items()}
    return {
        "name": one.role or "server",
        "copies": one.copies,
        "size": server.size,
        "image": rollout.image or "IMAGE",
        "command": items(x.replace("$HEAD", "$(LWS_LEADER_ADDRESS)") for x in line),
        "variables": "\n".join(f"- name: {x}\n{text}" for x, text in own.items()),
        "resource": "amd.com/gpu" if one.maker == "AMD" else "nvidia.com/gpu",
        "gpus": len(server.gpus),
    }


def address(server: Process) -> str:
    """A pod of its set, and the port of all pods."""
    name, copy, *_ = server.name.split("-")
    return f"{name}-{copy}.{name}:{FRONT}"


def _dynamo_options(rollout: Rollout, one: Instance) -> list[str]:
    """The engine's options as Dynamo's worker takes them."""
    engine, service = rollout.serving, rollout.service
    words = [str(word) for word in engine.flags(one._replace(copies=1), service)]
    if one.role:
        at = words.index("--port")
        del words[at : at + 2]
    own = engine.packages.dynamo_words
    words = [x for word in words for x in own.get(word, (word,))]
    words = [f"{FOLDER}/{word}" if word in rollout.files else word for word in words]
    # options that the engine's own command has are not given twice
    model, mode = ["--model", service.checkpoint.repository], ["--disaggregation-mode", one.role]
    before = [] if service.checkpoint.repository in words else model
    after = mode if one.role and mode[0] not in words else []
    return [*before, *words, *after]
