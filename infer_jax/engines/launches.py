"""A plan in the terms that every engine needs, its commands, and what installs an engine."""

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from infer_jax.specs import UNBOUNDED

# ports of the servers of each pool; the proxy in front of them has the engine's default (8000,
# 30000), as in docs.vllm.ai/en/v0.12.0/features/nixl_connector_usage
PORTS = {"prefill": 8100, "decode": 8200}


class Shell(str):
    """A word that the shell expands: not quoted."""


def command_line(program: str, flags: Sequence[object]) -> str:
    """A shell command with one option on each line, its values behind it."""
    words = [program]
    for flag in flags:
        if str(flag).startswith("--"):
            words.append(str(flag))
        else:
            words[-1] += f" {flag if isinstance(flag, Shell) else shlex.quote(str(flag))}"
    return " \\\n  ".join(words)


class Instance(NamedTuple):
    """One kind of server of a plan; degrees as in ``estimators.serving.Deployment``.

    ``requests``: in flight in one instance (of a prefill pool: prompts in all its stages);
    ``most``: the most that an attention group may run, 0 for its share of ``requests``;
    ``arriving``: requests come at random, and none are kept in flight; ``chunk``: tokens of a pass,
    infinite for the engine's own; ``role``: "", "prefill" or "decode";
    ``machine``: GPUs of one machine; ``maker``: of the GPU, "" where not known; ``first``: number
    of the instance's first GPU in a machine that both pools share, -1 where they share none;
    ``port``: of one server that others reach, 0 for the usual one of its role.
    """

    tp: int
    groups: int = 1
    ep: int = 1
    pp: int = 1
    copies: int = 1
    requests: int = 1
    chunk: float = math.inf
    drafts: int = 0
    role: str = ""
    machine: int = 8
    maker: str = "NVIDIA"
    most: int = 0
    arriving: bool = False
    first: int = -1
    port: int = 0

    @property
    def ranks(self) -> int:
        """GPUs of one pipeline stage."""
        return self.tp * self.groups

    @property
    def gpus(self) -> int:
        """GPUs of the instance."""
        return self.ranks * self.pp

    @property
    def prompts(self) -> int:
        """Prompts in a pass of one attention group: one, or several in a prefill pool."""
        return math.ceil(self.requests / self.groups / self.pp) if self.role == "prefill" else 1

    @property
    def group_requests(self) -> int:
        """The most requests that run in one attention group, in all its stages."""
        return self.most or math.ceil(self.requests / self.groups)

    def where(self, machine: str = "") -> str:
        """Which machines run a command of it, in words."""
        ports = f" ({PORTS[self.role]}, {PORTS[self.role] + 1}...)" if self.role else ""
        copies = f"each of {self.copies} instances, on GPUs and a port{ports} of its own"
        words = (self.role, copies if self.copies > 1 else "", machine)
        return ", ".join(word for word in words if word)

    @property
    def listens(self) -> list[object]:
        """The option of its port, where it is not the engine's own."""
        port = self.port or PORTS.get(self.role, 0)
        return ["--port", port] if port else []

    @property
    def environment(self) -> str:
        """What a command begins with: the GPUs of a machine that it shares with others."""
        if self.first < 0:
            return ""
        return f"CUDA_VISIBLE_DEVICES={','.join(str(self.first + i) for i in range(self.gpus))} "


class ModelCheckpoint(NamedTuple):
    """The weights that a server loads: a repository or folder, and casts while loading.

    ``cast``: the format to which 16-bit weights are cast while they are loaded, or "".
    ``cache``: the format of the KV cache that is asked for, or "" for the checkpoint's own.
    ``missing``: why there is nothing to load, or "". ``code``: whether the repository brings
    code that must be trusted.
    """

    repository: str
    cast: str = ""
    cache: str = ""
    missing: str = ""
    code: bool = False


class LaunchedService(NamedTuple):
    """A model, the lengths of its requests, and the instances that serve it: one kind or two pools.

    ``heads``: whether the model drafts with its own heads; ``draft``: the repository of the draft
    model, or ""; ``experts``: whether it is a mixture; ``hybrid``: whether its layers keep several
    kinds of cache; ``limit``: the longest context of the model; ``comments``: where ``context`` and
    ``Instance.most`` come from, if not from the plan.
    """

    checkpoint: ModelCheckpoint
    instances: tuple[Instance, ...]
    isl: int
    context: int
    heads: bool = False
    draft: str = ""
    experts: bool = False
    hybrid: bool = False
    limit: float = UNBOUNDED
    comments: tuple[str, ...] = ()


class Step(NamedTuple):
    """A command, and where it is run."""

    where: str
    command: str


class Launch(NamedTuple):
    """A plan for one engine: commands, files that they read, notes; or why there are none.

    ``comments``: where numbers of the commands come from, if not from the plan.
    """

    engine: str
    version: str
    source: str
    steps: tuple[Step, ...] = ()
    files: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    comments: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """The launch for JSON."""
        steps = [step._asdict() for step in self.steps]
        return {
            "version": self.version,
            "commands": steps,
            "files": dict(self.files),
            "notes": [*self.comments, *self.notes],
            "not_printed": [*self.missing],
        }


class Packages(NamedTuple):
    """Images, packages and commands around an engine's servers; the defaults suit any engine.

    ``images``: container image by maker of the GPU, ``{}`` standing for the engine's version;
    ``package``: that pip installs, of the same release as the image for NVIDIA; ``client``: that
    measures it, of those in ``templates/bench.sh``.

    ``router``: the router's package with its version, "" where nginx spreads the requests;
    ``router_command``, ``router_image``: what starts it, and its image (``{}``: its version), where
    it has one; ``pool_option``: of that command before two pools; ``pool_command``: of what stands
    before two pools in the router's place, and reads their addresses from ``pools.yaml``;
    ``bootstrap``: port at which the first server of a machine that prefills tells those that decode
    where its cache is, 0 where the router need not know; ``transfer``: what moves caches between
    pools.

    ``llm_d``: its connector in llm-d's proxy, "" where that does not start it; ``dynamo``: its
    image in NVIDIA Dynamo and the engine in that; ``dynamo_words``: what Dynamo's worker has for
    words of the engine's own command.
    """

    images: Mapping[str, str] = {}
    package: str = ""
    client: str = "aiperf"
    router: str = ""
    router_command: tuple[str, ...] = ()
    router_image: str = ""
    pool_option: str = ""
    pool_command: tuple[str, ...] = ()
    bootstrap: int = 0
    transfer: str = ""
    llm_d: str = ""
    dynamo: tuple[str, str] | None = None
    dynamo_words: Mapping[str, tuple[str, ...]] = {}

    @property
    def router_release(self) -> str:
        """The version of the router's package."""
        return self.router.partition("==")[2]
