"""What starts the servers of one machine: a shell script, or a Docker Compose file.

Containers share the host's network, so that their ports and addresses are those of the script.
Source: the Compose specification, github.com/compose-spec/compose-spec (05-services.md, deploy.md,
08-configs.md).
"""

import json
import shlex

from infer_jax.engines.launches import Shell
from infer_jax.rollouts.rollout import Rollout
from infer_jax.rollouts.servers import (
    FRONT,
    Process,
    command,
    router,
    router_container,
    router_files,
    servers,
)
from infer_jax.rollouts.template import blocks, fill, items

SLURM = "Slurm starts an instance over several machines, by the commands above"
AMD = 'devices: ["/dev/kfd", "/dev/dri"]\ngroup_add: ["video"]'
NVIDIA = """\
deploy:
  resources:
    reservations:
      devices:
        - driver: nvidia
          device_ids: {}
          capabilities: ["gpu"]"""


def script(rollout: Rollout) -> dict[str, str] | str:
    """The script; on several machines it is given the number of the machine and HOSTS."""
    if rollout.under_slurm:
        return SLURM
    placed, engine = servers(rollout), rollout.serving
    machines = 1 + max(server.machine for server in placed)
    cases: list[str] = []
    for m in range(machines):
        cases.append(f"{m})")
        for name, text in router_files(rollout, _host).items() if m == 0 else ():
            cases.append(f"cat >{name} <<END\n{text}END")
        cases += [_start(rollout, server) for server in placed if server.machine == m]
        if m == 0 and (words := router(rollout, _host)):
            cases.append(_lines(["router", *map(_router_word, words)]))
        cases.append("  ;;")
    usage = f"./start.sh # requests go to http://localhost:{FRONT}/v1"
    if machines > 1:
        usage = (
            f'HOSTS="{machine_texts("ADDRESS_{}", machines)}" ./start.sh M # on machine M, 0 to '
        )
        usage += f"{machines - 1}; requests go to http://ADDRESS_0:{FRONT}/v1"
    front = f", {engine.packages.router or 'nginx'}" if len(placed) > 1 else ""
    values = {"title": rollout.title, "engine": f"{engine.title} {engine.version}{front}"}
    values |= {"usage": usage, "machines": str(machines), "last": str(machines - 1)}
    return {"start.sh": fill("start.sh", {**values, "cases": "\n".join(cases)})}


def compose(rollout: Rollout) -> dict[str, str] | str:
    """The files: one, or one for each machine."""
    if rollout.under_slurm:
        return SLURM
    placed = servers(rollout)
    machines = 1 + max(server.machine for server in placed)
    hosts = [f"${{HOST_{m}:?address of machine {m}}}" for m in range(machines)]
    hosts = ["127.0.0.1"] if machines == 1 else hosts

    def address(server: Process) -> str:
        return f"{hosts[server.machine]}:{server.port}"

    texts: dict[str, str] = {}
    for m in range(machines):
        name = "compose.yaml" if machines == 1 else f"compose-{m}.yaml"
        own = f"{machine_texts('HOST_{0}=ADDRESS_{0}', machines)} " if machines > 1 else ""
        where = f" # on machine {m}" if machines > 1 else ""
        text = f"# {rollout.title}\n# {own}docker compose -f {name} up -d{where}\nservices:\n"
        text += "".join(_service(rollout, x, hosts) for x in placed if x.machine == m)
        if m == 0 and router(rollout, address):
            image, words = router_container(rollout, address)
            read = router_files(rollout, address)
            links = [json.dumps({"source": x, "target": f"/plan/{x}"}) for x in read]
            values = {"image": image, "command": items(words)}
            values["configs"] = f"configs: [{', '.join(links)}]" if read else ""
            text += fill("compose-router.yaml", values)
            for x, content in read.items():
                block = blocks({"content": content}).replace("\n", "\n    ")
                text += f"configs:\n  {x}:\n    {block}\n"
        texts[name] = text
    return texts


def machine_texts(pattern: str, machines: int) -> str:
    """The text of each machine by its number, with spaces between."""
    return " ".join(pattern.format(m) for m in range(machines))


def _service(rollout: Rollout, server: Process, hosts: list[str]) -> str:
    """The container of a server."""
    variables, words = command(rollout, server, hosts[server.machine])
    head, amd = hosts[server.head], server.instance.maker == "AMD"
    line = [x.strip('"').replace("$HEAD", head) if isinstance(x, Shell) else x for x in words]
    variables = (server.visible if amd else {}) | variables
    values = {
        "name": server.name,
        "image": f"${{IMAGE:-{rollout.image}}}" if rollout.image else "${IMAGE:?see README.md}",
        "command": items(line),
        "variables": "\n".join(f"{x}: {json.dumps(text)}" for x, text in variables.items()),
        "devices": AMD if amd else NVIDIA.format(json.dumps([str(x) for x in server.gpus])),
    }
    return fill("compose-server.yaml", values)


def _start(rollout: Rollout, server: Process) -> str:
    """The line of the script that starts a server."""
    own, head = f'"${{hosts[{server.machine}]}}"', f"${{hosts[{server.head}]}}"
    variables, words = command(rollout, server, "HOST")
    shown = {x: own if text == "HOST" else text for x, text in variables.items()}
    quoted = [
        x.replace("$HEAD", head) if isinstance(x, Shell) else shlex.quote(str(x)) for x in words
    ]
    pairs = [f"{x}={text}" for x, text in (server.visible | shown).items()]
    return _lines([server.name, *pairs, *quoted])


def _lines(words: list[str]) -> str:
    """A call of ``start`` with one option on each line."""
    lines = ["  start"]
    for word in words:
        if word.startswith("--"):
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}"
    return " \\\n".join(lines)


def _host(server: Process) -> str:
    return f"${{hosts[{server.machine}]}}:{server.port}"


def _router_word(word: str) -> str:
    """A word of the router's command: addresses are expanded, nginx wants a whole path."""
    if word == "nginx.conf":
        return '"$PWD/nginx.conf"'
    return f'"{word}"' if "${hosts[" in word else shlex.quote(word)
