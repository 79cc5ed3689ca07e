"""The bit-identical answer on one device and four, one process and several, and after a kill."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infer_jax.sweeps import prepare, start
from tests.unit.sweeps.worker import question

ROOT = Path(__file__).parents[3]


def begin(**settings):
    env = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"}
    env |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    env |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    env |= {"JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    command = [sys.executable, "-m", "tests.unit.sweeps.worker", json.dumps(settings)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=pipe, stderr=pipe, text=True)


def begin_together(count, **settings):
    """Processes of two devices each that sweep one grid."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {"processes": count, "port": port, "devices": 2, **settings}
    return [begin(process=i, **shared) for i in range(count)]


def end(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err[-2000:]
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module", autouse=True)
def _programs(tmp_path_factory):
    """A folder of programs that is empty at first, for these tests count what is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("programs")))
        yield


@pytest.fixture(scope="module")
def alone():
    """The answer of one device in one process, in one go."""
    output = end(begin())
    assert output["devices"] == 1 and len(output["answer"]["index"]) > 50 and output["misses"] > 0
    return output["answer"]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"devices": 3}, {"chunk": 32768}])
def test_devices_and_chunks(alone, settings):
    output = end(begin(**settings))
    assert output["devices"] == settings.get("devices", 1)
    assert output["answer"] == alone


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes(alone, count):
    for output in [end(process) for process in begin_together(count)]:
        assert output["devices"] == 2 * count
        assert output["answer"] == alone
        assert output["half"] == 0.5  # a program that runs once, on a device of the process


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments(alone, tmp_path, kills):
    """On four devices and in small chunks; carried on as ``alone``, whose programs are stored."""
    file, dice = tmp_path / "point.npz", random.Random(5)
    settings = {"checkpoint": str(file), "every": 0.0, "target": 0.02}
    for _ in range(kills):
        process, reports, seen = begin(devices=4, chunk=512, **settings), dice.randint(1, 4), 0
        for line in process.stderr or ():
            seen += line.strip().isdigit()
            if seen >= reports:
                break
        time.sleep(dice.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    output = end(begin(**settings))
    assert output["answer"] == alone
    assert output["misses"] == 0
    assert output["notes"] and "carried on at point" in output["notes"][0]
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith(".")] == ["point.npz"]


def test_autoscalers_on_two_hosts_killed_and_carried_on(tmp_path):
    """The answer of one process, which all policies one by one have, too."""
    estimator, space, keep, precision = question("autoscalers")
    whole = start(prepare(estimator, space, keep, precision=precision))
    file = tmp_path / "point.npz"
    settings = {"subject": "autoscalers", "checkpoint": str(file), "every": 0.0}
    joined = begin_together(2, chunk=2, target=1e-3, **settings)
    while not file.exists():
        assert joined[0].poll() is None, joined[0].communicate()[1][-2000:]
        time.sleep(0.01)
    for process in joined:
        process.kill()
        process.communicate()
    for output in [end(process) for process in begin_together(2, **settings)]:
        assert output["answer"]["index"] == whole.index and output["devices"] == 4
        assert "carried on at point" in output["notes"][0]
    assert len(whole) > 3
