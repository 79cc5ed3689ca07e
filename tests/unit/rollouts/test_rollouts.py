"""Folders that start plans: every option exists, servers share no GPU, and scripts run."""

import itertools
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path

import pytest
import yaml

import infer_jax as ij
from infer_jax.calibration.runs import engine_of, load_of
from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.files import write_folder
from infer_jax.catalog.measurements import read_runs
from infer_jax.engines import Instance, LaunchedService, ModelCheckpoint
from infer_jax.errors import InputError
from infer_jax.launch import service
from infer_jax.planning import Layout, PlanPool
from infer_jax.rollouts import Load, Rollout, folder
from infer_jax.rollouts.rollout import CHECKPOINT
from infer_jax.rollouts.servers import servers

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


# a program that says where it runs and what it was told, then goes on; the router ends once all
# five programs have
STUB = """#!/bin/bash
echo "$CUDA_VISIBLE_DEVICES|$(basename "$0")|$*" >>"$STARTED"
while [[ $0 != *router ]] || [ "$(wc -l <"$STARTED")" -lt 5 ]; do sleep 0.1; done
"""


def start(name, tmp_path, hosts):
    """The programs that the script of machine 0 starts: (GPUs, name, options)."""
    write_folder(tmp_path / "plan", FOLDERS[name])
    place, started = tmp_path / "bin", tmp_path / "started"
    place.mkdir()
    for program in ("vllm", "vllm-router"):
        (place / program).write_text(STUB)
        (place / program).chmod(0o755)
    env = {"PATH": f"{place}:{os.environ['PATH']}", "STARTED": str(started), "HOSTS": hosts}
    ran = subprocess.run([tmp_path / "plan" / "start.sh", "0"], env=env, capture_output=True,
                         text=True, timeout=120)  # fmt: skip
    lines = started.read_text().splitlines() if started.exists() else []
    return ran, sorted(line.split("|", 2) for line in lines)


def test_the_script_starts_every_server_on_its_gpus(tmp_path):
    ran, started = start("several", tmp_path, "10.0.0.1 10.0.0.2")
    assert ran.returncode == 1 and "ended" in ran.stderr  # the router did
    gpus = [x[0] for x in started]
    assert gpus == ["", "0,1", "2,3", "4,5", "6,7"]
    assert all("--kv-cache-dtype fp8" in words for _, program, words in started[1:])
    urls = re.findall(r"http://(\S+)", started[0][2])
    assert urls == [*(f"10.0.0.1:{8100 + i}" for i in range(4)), "10.0.0.2:8100", "10.0.0.2:8101"]


def test_the_script_says_what_it_needs(tmp_path):
    ran, started = start("several", tmp_path, "10.0.0.1")
    assert ran.returncode == 2 and "2 machines" in ran.stderr and not started


@pytest.mark.parametrize("name", PLANS)
def test_scripts_are_of_the_shell(name):
    for file, text in FOLDERS[name].items():
        if file.endswith(".sh"):
            assert subprocess.run(["bash", "-n"], input=text.encode()).returncode == 0


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


def test_a_plan_goes_through_json_unchanged():
    own = PLANS["several"]._replace(promises=(("TTFT", "", "9 ms"),))
    for plan in (*PLANS.values(), own):
        assert plan.startable().startable() == plan.startable()
        for chunk in (math.inf, 512.0):
            instances = tuple(x._replace(chunk=chunk) for x in plan.service.instances)
            own = plan._replace(service=plan.service._replace(instances=instances))
            text = json.dumps(own.to_dict(), allow_nan=False)
            assert Rollout.of(json.loads(text)) == own


GOOD = PLANS["several"].to_dict()


def with_instance(**changes):
    """The plan with other numbers of its instances."""
    (one,) = PLANS["several"].service.instances
    service = PLANS["several"].service._replace(instances=(one._replace(**changes),))
    return PLANS["several"]._replace(service=service).to_dict()


WRONG = [
    {}, {"engine": "vllm"}, None, [], GOOD | {"engine": "tgi"}, GOOD | {"systems": []},
    GOOD | {"more": 1}, GOOD | {"title": 3}, GOOD | {"load": {"isl": 1, "osl": 1, "rate": None}},
    GOOD | {"expected": ["a"]}, with_instance(role="prefill"), with_instance(role="a; b"),
    with_instance(copies=10**9), with_instance(tp=0), with_instance(machine=0),
]  # fmt: skip


@pytest.mark.parametrize("fields", WRONG)
def test_what_is_no_plan_is_refused_in_a_sentence(fields):
    with pytest.raises(InputError, match="deployment"):
        Rollout.of(fields)


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


CLIENT = '''#!{python}
"""Writes what a client of a benchmark would, from the options that it was given."""
import json, os, shutil, sys
words = sys.argv[1:]
given = dict(zip(words, words[1:]))
program = os.path.basename(sys.argv[0])
if program == "aiperf":
    os.makedirs(given["--artifact-dir"])
    shutil.copy("{aiperf}", given["--artifact-dir"] + "/profile_export_aiperf.json")
    sys.exit()
isl, osl = int(given["--random-input-len"]), int(given["--random-output-len"])
count = int(given["--num-prompts"])
load = int(given.get("--max-concurrency", 0)) or None
# a pass of 20 ms and prompts of 100 ms, as many at once as there are in flight
latency = 0.1 + (osl - 1) * 0.02
rate = (load or 8) / latency
answer = {{
    "completed": count, "total_input_tokens": isl * count, "total_output_tokens": osl * count,
    "mean_ttft_ms": 100.0, "mean_tpot_ms": 20.0, "request_throughput": rate,
    "duration": count / rate, "max_concurrency": load,
    "request_rate": float(given.get("--request-rate", "inf")) if load is None else "inf",
}}
if program == "vllm":
    answer |= {{"model_id": given["--model"], "num_prompts": count, "backend": given["--backend"]}}
    place = given["--result-dir"] + "/" + given["--result-filename"]
else:
    answer |= {{"backend": given["--backend"], "dataset_name": given["--dataset-name"]}}
    place = given["--output-file"]
open(place, "a").write(json.dumps(answer) + "\\n")
'''


@pytest.mark.parametrize("client", ["vllm", "sglang", "aiperf"])
def test_calibrate_reads_what_the_benchmark_writes(client, tmp_path):
    """Each client is a stand-in that writes its format; the loads are those that were asked for."""
    write_folder(tmp_path / "plan", FOLDERS["several"])
    (tmp_path / "bin").mkdir()
    for program in ("vllm", "python3", "aiperf"):
        text = CLIENT.format(python=sys.executable, aiperf=DATA / "measurements" / "aiperf.json")
        (tmp_path / "bin" / program).write_text(text)
        (tmp_path / "bin" / program).chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CLIENT": client}
    ran = subprocess.run(["bash", tmp_path / "plan" / "bench.sh"], env=env, capture_output=True,
                         text=True, cwd=tmp_path, timeout=60)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    facts = {"engine": "vllm"} if client == "aiperf" else {}
    runs = read_runs([str(tmp_path / "runs" / "one-*.json*")], tp=2.0, **facts)
    if client == "aiperf":
        assert len(runs) == 1  # the same file twice
        return
    loads = [load_of(run).workload for run in runs]
    assert [tuple(map(float, (x.isl, x.osl, x.batch))) for x in loads] == [
        (x.isl, x.osl, x.concurrency) for x in PLANS["several"].measure
    ]
    assert engine_of(runs) == client
    # what the script prints is a command of ours
    words = shlex.split(ran.stdout.strip().splitlines()[-1])
    assert words[:2] == ["infer-jax", "calibrate"]
    parameters = {f"--{name.replace('_', '-')}" for name in signature(ij.calibrate).parameters}
    assert {x for x in words if x.startswith("--")} <= parameters
