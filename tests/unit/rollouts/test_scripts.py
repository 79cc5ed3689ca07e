"""Scripts that start a plan and benchmark it, run with stand-ins for their programs."""

import os
import re
import shlex
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest

import infer_jax as ij
from infer_jax.calibration.runs import engine_of, load_of
from infer_jax.catalog.files import write_folder
from infer_jax.catalog.measurements import read_runs
from tests.unit.rollouts.plans import FOLDERS, PLANS

DATA = Path(__file__).parents[2] / "data"


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
