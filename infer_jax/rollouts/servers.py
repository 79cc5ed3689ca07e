"""The servers of a rollout, each on GPUs and a port of its own, and the router before them.

What differs from engine to engine, with its sources, is in the engine's object (``engines``).
"""

import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

from infer_jax.engines import Instance
from infer_jax.engines.launches import PORTS
from infer_jax.engines.trtllm import pools_file
from infer_jax.rollouts.rollout import Rollout
from infer_jax.rollouts.template import fill

FRONT = 8000  # port at which requests come in
PATIENCE = "3600"  # seconds that a router waits for servers to load their weights
FOLDER = "/plan"  # where containers have the files of the folder
PYTHON, NGINX = "python:3.12-slim", "nginx:1.29"  # images


class Process(NamedTuple):
    """One process of an instance.

    ``machine``: where it runs; ``number``: which process of the machine it is; ``gpus``: its GPUs
    there; ``rank`` of ``size``: which machine of the instance; ``head``: machine of its rank 0.
    """

    name: str
    instance: Instance
    machine: int
    number: int
    gpus: Sequence[int]
    port: int
    rank: int = 0
    size: int = 1
    head: int = 0

    @property
    def visible(self) -> dict[str, str]:
        """The variable that shows it its GPUs."""
        amd = self.instance.maker == "AMD"
        name = "HIP_VISIBLE_DEVICES" if amd else "CUDA_VISIBLE_DEVICES"
        return {name: ",".join(map(str, self.gpus))}


Address = Callable[[Process], str]  # host and port


def servers(rollout: Rollout) -> list[Process]:
    """The processes of all instances, on the first machines that have room for them.

    An instance over several machines has them for itself; pools of different systems share none.
    """
    placed: list[Process] = []
    machines: list[tuple[str, int, int]] = []  # system, GPUs taken, processes
    instances = rollout.service.instances
    alone = len(instances) == 1 and instances[0].copies == 1
    for one in instances:
        owner = rollout.systems[-1 if one.role == "decode" else 0]
        size = rollout.serving.machines(one)
        part = one.gpus // size
        for copy in range(one.copies):
            room = one.machine - part if size == 1 else -1
            here = [m for m, x in enumerate(machines) if x[0] == owner and x[1] <= room][:1]
            while len(here) < size:
                here.append(len(machines))
                machines.append((owner, 0, 0))
            for rank, m in enumerate(here):
                _, first, number = machines[m]
                name = f"{one.role or 'server'}-{copy}" + (f"-{rank}" if size > 1 else "")
                port = FRONT if alone else PORTS.get(one.role, 8100) + number
                gpus = range(first, first + part)
                placed.append(Process(name, one, m, number, gpus, port, rank, size, here[0]))
                machines[m] = owner, one.machine if size > 1 else first + part, number + 1
    return placed


def heads(rollout: Rollout) -> list[Process]:
    """The servers that take requests: of each instance the first process."""
    return [server for server in servers(rollout) if server.rank == 0]


def command(
    rollout: Rollout, server: Process, host: str, rank: object | None = None
) -> tuple[dict[str, str], list[object]]:
    """Environment and words of a server's command; ``host``: its own address.

    ``rank``: in place of its own number among the machines of the instance.
    """
    engine, service = rollout.serving, rollout.service
    one = server.instance._replace(copies=1, port=server.port)
    program = shlex.split(engine.program(service))
    program = ["python3" if word == "python" else word for word in program]  # in every image
    variables, options = engine.address_options(one, server.number, host)
    words = [*program, *engine.flags(one, service), *options]
    if server.size > 1:
        words += engine.join_options(server.size, server.rank if rank is None else rank)
    return variables, words


def router(rollout: Rollout, address: Address) -> list[str]:
    """The words of the router's command; none where a single server takes all requests."""
    front = heads(rollout)
    prefill = [x for x in front if x.instance.role == "prefill"]
    if len(front) == 1:
        return []
    own = rollout.serving.packages
    if prefill and own.pool_command:
        return [*own.pool_command]
    if not own.router_command:
        return ["nginx", "-c", "nginx.conf"]
    words = [*own.router_command]
    # one that looks at prefixes is right only where prompts share them
    policy = "cache_aware" if rollout.prefix > 0.0 else "round_robin"
    words += ["--host", "0.0.0.0", "--port", str(FRONT), "--policy", policy]
    words += ["--worker-startup-timeout-secs", PATIENCE]
    if not prefill:
        return [*words, "--worker-urls", *(f"http://{address(x)}" for x in front)]
    words.append(own.pool_option)
    for server in prefill:
        words += ["--prefill", f"http://{address(server)}"]
        words += [str(own.bootstrap + server.number)] if own.bootstrap else []
    for server in front[len(prefill) :]:
        words += ["--decode", f"http://{address(server)}"]
    return words


def router_files(rollout: Rollout, address: Address) -> dict[str, str]:
    """What the router reads: addresses of two pools, or nginx's settings."""
    words, front = router(rollout, address), heads(rollout)
    if "pools.yaml" in words:
        roles = ("prefill", "decode")
        those = [[address(x) for x in front if x.instance.role == role] for role in roles]
        return {"pools.yaml": pools_file(those, "0.0.0.0") + "\n"}
    lines = "\n".join(f"server {address(server)};" for server in front)
    return {"nginx.conf": fill("nginx.conf", {"servers": lines})} if "nginx.conf" in words else {}


def router_container(rollout: Rollout, address: Address) -> tuple[str, list[str]]:
    """The image of the router and its command in it, which may have to install it."""
    words = router(rollout, address)
    line = [f"{FOLDER}/{x}" if x in ("pools.yaml", "nginx.conf") else x for x in words]
    own = rollout.serving.packages
    if words == [*own.pool_command]:
        return rollout.image, line
    if not own.router:
        return NGINX, line
    if own.router_image:
        return own.router_image.format(own.router_release), line
    return PYTHON, ["sh", "-c", " ".join([f"pip install --quiet {own.router} && exec", *line])]
