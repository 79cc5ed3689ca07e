"""Folders that start plans: every option exists, servers share no GPU, and scripts run."""

import itertools
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.files import write_folder
from infer_jax.engines import Instance, ModelCheckpoint
from infer_jax.errors import InputError
from infer_jax.launch import service
from infer_jax.planning import Layout, PlanPool
from infer_jax.rollouts import Load, Rollout, folder
from infer_jax.rollouts.rollout import CHECKPOINT
from infer_jax.rollouts.servers import servers
from tests.unit.rollouts.plans import FOLDERS, PLANS, rollout

DATA = Path(__file__).parents[2] / "data"
FLAGS = {
    name: set(names.split())
    for name, names in tomllib.loads((DATA / "flags.toml").read_text()).items()
}
SERVERS = {"vllm serve": "vllm serve 0.33.0", "python3 -m sglang.launch_server":
           "sglang.launch_server 0.5.23", "vllm-router": "vllm-router 0.1.17",
           "python3 -m sglang_router.launch_router": "sglang_router 0.3.2",
           "vllm bench serve": "vllm bench serve 0.33.0", "aiperf profile": "aiperf profile 0.13.0",
           "python3 -m sglang.bench_serving": "sglang.bench_serving 0.5.23",
           "python3 -m dynamo.vllm": "dynamo.vllm 1.6.1", "python3 -m dynamo.sglang":
           "dynamo.sglang 1.6.1", "python3 -m dynamo.trtllm": "dynamo.trtllm 1.6.1"}  # fmt: skip
TRTLLM = tomllib.loads((DATA / "engines.toml").read_text())["trtllm"]["options"]
FLAGS["trtllm-serve"] = {*TRTLLM, "--host"}  # of the same source
SERVERS["trtllm-serve"] = "trtllm-serve"


def commands(words):
    """The program of a command, and its options."""
    if words[:2] == ["sh", "-c"]:
        line = words[2].rpartition("exec ")[2].replace('"$@"', "")
        words = shlex.split(line)
    text = " ".join(words)
    (program,) = (x for x in SERVERS if text.startswith(x))
    return SERVERS[program], {x for x in words if x.startswith("--")}


def containers(tree):
    """Commands of all containers of a document."""
    if isinstance(tree, dict):
        if "image" in tree and "command" in tree:
            yield [*tree["command"], *tree.get("args", [])]
        tree = [*tree.values()]
    for value in tree if isinstance(tree, list) else ():
        yield from containers(value)


def documents(name):
    """All documents of YAML of a folder."""
    for file, text in FOLDERS[name].items():
        if file.endswith(".yaml"):
            yield from ((file, x) for x in yaml.safe_load_all(text))


@pytest.mark.parametrize("name", PLANS)
def test_every_option_is_one_of_the_release_that_is_named(name):
    """Options by the wheels of the releases (tests/flags.py)."""
    seen = set()
    for file, tree in documents(name):
        for words in containers(tree):
            if words[0] in ("nginx", "bash") or words[:2] == ["trtllm-serve", "disaggregated"]:
                continue
            program, options = commands(words)
            assert options <= FLAGS[program], (file, program, options - FLAGS[program])
            seen.add(file)
    assert {"kubernetes.yaml", "dynamo.yaml"} & seen
    values = FOLDERS[name].get("production-stack-values.yaml")
    if values:
        (spec,) = yaml.safe_load(values)["servingEngineSpec"]["modelSpec"]
        extra = {x for x in spec["vllmConfig"]["extraArgs"] if x.startswith("--")}
        assert extra <= FLAGS["vllm serve 0.33.0"]
    bench = FOLDERS[name]["bench.sh"].replace("\\\n", " ")
    lines = re.findall(r"^ +((?:vllm bench|python3 -m sglang\S+|aiperf profile) .*)$", bench, re.M)
    assert len(lines) == 3
    for line in lines:
        program, options = commands(line.split())
        assert options <= FLAGS[program], options - FLAGS[program]


@pytest.mark.parametrize("name", PLANS)
def test_servers_share_no_gpu_and_no_port(name):
    plan = PLANS[name]
    placed = servers(plan)
    taken = [(x.machine, gpu) for x in placed for gpu in x.gpus]
    assert len(taken) == len(set(taken))
    assert len({(x.machine, x.port) for x in placed}) == len(placed)
    for one in plan.service.instances:
        mine = [x for x in placed if x.instance == one]
        assert sum(len(x.gpus) for x in mine) == one.copies * one.gpus
        assert all(gpu < one.machine for x in mine for gpu in x.gpus)
    machines = -(-sum(x.copies * x.gpus for x in plan.service.instances) // 8)
    assert len({x.machine for x in placed}) == machines  # all of these plans fill machines
    if len(plan.systems) > 1:  # two kinds of machines
        first, second = ({x.machine for x in placed if x.instance.role == role}
                         for role in ("prefill", "decode"))  # fmt: skip
        assert not first & second


# fields by the API reference, kubernetes.io/docs/reference/generated/kubernetes-api/v1.32
POD = {"containers", "volumes", "restartPolicy"}
CONTAINER = {"name", "image", "command", "args", "env", "envFrom", "ports", "resources",
             "volumeMounts", "workingDir", "startupProbe", "readinessProbe"}  # fmt: skip
SPECS = {
    "Service": {"clusterIP", "publishNotReadyAddresses", "selector", "ports"},
    "Deployment": {"replicas", "selector", "template"},
    "StatefulSet": {"serviceName", "replicas", "podManagementPolicy", "selector", "template"},
    "Job": {"backoffLimit", "template"},
    "LeaderWorkerSet": {"replicas", "leaderWorkerTemplate"},
    "DynamoGraphDeployment": {"backendFramework", "components"},
}
VERSIONS = {"Service": "v1", "ConfigMap": "v1", "Deployment": "apps/v1", "StatefulSet": "apps/v1",
            "Job": "batch/v1", "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
            "DynamoGraphDeployment": "nvidia.com/v1beta1"}  # fmt: skip


def pods(tree):
    """The specifications of all pods of an object."""
    if isinstance(tree, dict):
        if "containers" in tree and "image" in tree["containers"][0]:
            yield tree
        tree = [*tree.values()]
    for value in tree if isinstance(tree, list) else ():
        yield from pods(value)


@pytest.mark.parametrize("name", PLANS)
def test_manifests_have_the_fields_of_the_api(name):
    for file, tree in documents(name):
        if not tree or "kind" not in tree:
            continue
        kind, spec = tree["kind"], tree.get("spec", {})
        assert tree["apiVersion"] == VERSIONS[kind]
        assert re.fullmatch(r"[a-z][a-z0-9-]{0,62}", tree["metadata"]["name"])
        assert set(spec) <= SPECS.get(kind, set()), (file, kind)
        if kind == "ConfigMap":
            assert all(isinstance(x, str) for x in tree["data"].values())
        if "selector" in spec and kind != "Service":
            labels = spec["template"]["metadata"]["labels"]
            assert spec["selector"]["matchLabels"].items() <= labels.items()
        for pod in pods(tree):
            assert set(pod) <= POD
            volumes = {x["name"] for x in pod.get("volumes", [])}
            for container in pod["containers"]:
                assert set(container) <= CONTAINER, set(container) - CONTAINER
                assert {x["name"] for x in container.get("volumeMounts", [])} <= volumes
                words = [
                    *container.get("command", []),
                    *(x.get("value", "") for x in container.get("env", [])),
                ]
                assert all(isinstance(x, str) for x in words)
    # each set has as many pods, and a pod as many GPUs, as the plan
    plan = PLANS[name]
    objects = [x for file, x in documents(name) if file == "kubernetes.yaml" and x["kind"] in
               ("StatefulSet", "LeaderWorkerSet")]  # fmt: skip
    for one, tree in zip(plan.service.instances, objects, strict=False):
        size = plan.serving.machines(one)
        (limit,) = next(pods(tree))["containers"][0]["resources"]["limits"].values()
        assert tree["spec"]["replicas"] == one.copies and limit * size == one.gpus
    assert len(objects) == len(plan.service.instances) or "machines" in name


def test_addresses_of_the_router_are_those_of_the_servers():
    for name, plan in PLANS.items():
        heads, files = [x for x in servers(plan) if x.rank == 0], FOLDERS[name]
        if len(heads) == 1 or "kubernetes.yaml" not in files:
            continue
        (compose,) = (x for file, x in files.items() if file in ("compose.yaml", "compose-0.yaml"))
        found = re.findall(r"(?:of machine (\d)\}|127\.0\.0\.1):(8\d\d\d)", compose)
        assert [(int(m or 0), int(port)) for m, port in found] == [
            (x.machine, x.port) for x in heads
        ]
        for server in heads:
            role, copy = server.instance.role or "server", server.name.split("-")[1]
            assert f"{role}-{copy}.{role}:8000" in files["kubernetes.yaml"]


def test_what_is_missing_is_said():
    page = {
        name: files["README.md"].partition("What is missing")[2] for name, files in FOLDERS.items()
    }
    assert "Nothing" in page["several"]
    assert (
        "none are known" in page["no weights"] and CHECKPOINT in FOLDERS["no weights"]["start.sh"]
    )
    assert "two pools" in page["vllm pools"] and "drafts" in page["one, drafts"]
    assert (
        "Slurm" in page["trtllm, machines"] and "srun" in FOLDERS["trtllm, machines"]["README.md"]
    )
    assert "start.sh" not in FOLDERS["trtllm, machines"]
    assert "vLLM starts it" in page["another engine"]
    assert "image" in page["sglang amd"]
    assert "policy cache_aware" in " ".join(FOLDERS["cached"]["start.sh"].split())
    assert 'run plan "$url" 2000 300 960 rate 8 1000\n' in FOLDERS["cached"]["bench.sh"]


@pytest.mark.parametrize("name", PLANS)
def test_the_page_says_what_to_type_for_each_file(name):
    """And each file says the same above its first line that counts."""
    files, read = FOLDERS[name], {"README.md", *PLANS[name].startable().files}
    page = files["README.md"].partition("## Start it")[2].partition("## Servers")[0]
    blocks = dict(re.findall(r"`(\S+)`:\n\n```sh\n(.*?)\n```", page, re.S))
    assert blocks.keys() == files.keys() - read
    for file, lines in blocks.items():
        assert file in lines and all(f"\n# {line}\n" in files[file] for line in lines.split("\n"))
        for line in lines.split("\n"):
            assert shlex.split(line, comments=True)
    several = any(x.machine for x in servers(PLANS[name].startable()))
    assert ("start.sh" in blocks and "HOSTS=" in blocks["start.sh"]) == (
        several and "start.sh" in files
    )


def test_the_page_says_what_to_install_and_what_was_promised():
    """Releases are those of the images that the engines name."""
    lines = {
        "several": "vllm==0.33.0 vllm-router==0.1.17",
        "drafter": "sglang==0.5.23",
        "sglang pools": "sglang==0.5.23 sglang-router==0.3.2",
        "trtllm": "tensorrt-llm==1.3.0rc29",
    }
    for name, line in lines.items():
        start = FOLDERS[name]["README.md"].partition("## Start it")[2].partition("`start.sh`:")[0]
        assert f"    pip install {line}\n" in start
    assert all("pip install" not in FOLDERS[x]["README.md"] for x in ("amd", "sglang amd"))
    # one command of the plan, and several servers: only where one machine has all of a model's
    one = rollout("vllm", Instance(2, copies=4, requests=60), promises=(("TTFT", "2 s", "1 s"),))
    page = folder(one)[0]["README.md"]
    assert "`--data-parallel-size 4`" in page and "| TTFT | 2 s | 1 s |\n\n| file" in page
    assert all(x not in FOLDERS["several"]["README.md"] for x in ("data-parallel", "predicted |"))
    assert "2000 tokens in and 300 out" in page


def test_names_stay_within_their_quotes_and_comments():
    load = ModelCheckpoint("a/b'c \"$(touch x)")
    plan = rollout("vllm", Instance(8, copies=2), checkpoint=load)
    files, _ = folder(plan._replace(title="a\nrm -r b\x1b", config="c d"))
    assert all("\nrm" not in text and "\x1b" not in text for text in files.values())
    for name, text in files.items():
        if name.endswith(".yaml"):
            assert [*yaml.safe_load_all(text)]
        elif name.endswith(".sh"):
            assert shlex.quote(load.repository) in text


def test_no_engine_starts_it():
    tpu = rollout("vllm", Instance(8, maker="other"), systems=("tpu_v6e",))
    with pytest.raises(InputError, match="not an NVIDIA or AMD GPU"):
        folder(tpu)


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    place = tmp_path / "new"
    with pytest.raises(InputError):
        write_folder(place, {"a": "text", "b": "\ud800"})
    assert not [*tmp_path.iterdir()]
    place.mkdir()
    write_folder(place, {"a.sh": "text"})
    assert (place / "a.sh").stat().st_mode & 0o100
    for wrong in (place, place / "a.sh", tmp_path / "no" / "where", tmp_path / "a\0b"):
        with pytest.raises(InputError):
            write_folder(wrong, {"b": "text"})
    assert [x.name for x in place.iterdir()] == ["a.sh"]


def test_every_engine_s_service_becomes_a_folder():
    """As the planner makes them: on racks, with drafts, and with cut prompts."""
    model, system = load_model("deepseek-r1"), load_system("gb200_nvl72")
    for (groups, copies), chunk in itertools.product(((16, 2), (4, 4)), (512.0, 4096.0)):
        pool = PlanPool(Layout(1, groups, groups, 1, chunk=chunk), copies, 800)
        served = service("deepseek-r1", model, [system], [pool], (8192, 1024))
        for engine in ("vllm", "sglang", "trtllm"):
            plan = Rollout(
                engine, served, ("gb200_nvl72",), "deepseek-r1", "R1", Load(8192, 1024, 64)
            )
            texts = folder(plan)[0]
            assert len({x.machine for x in servers(plan)}) == groups * copies // 4
            assert all("@" not in re.sub(r"\$@|\[@\]|##*@", "", x) for x in texts.values())
