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

ROOT = Path(__file__).parents[3]


def begin(**settings):
    env = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"}
    env |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    env |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    env |= {"JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    command = [sys.executable, "-m", "tests.unit.sweeps.worker", json.dumps(settings)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=pipe, stderr=pipe, text=True)


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


def test_a_second_process_compiles_nothing(alone):
    output = end(begin())
    assert (output["answer"], output["misses"]) == (alone, 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"devices": 4, "chunk": 512},
        *(pytest.param(one, marks=pytest.mark.slow) for one in ({"chunk": 32768}, {"devices": 3})),
    ],
)
def test_devices_and_chunks(alone, settings):
    output = end(begin(**settings))
    assert output["devices"] == settings.get("devices", 1)
    assert output["answer"] == alone


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes(alone, count):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    joined = [begin(processes=count, process=i, port=port, devices=2) for i in range(count)]
    for output in [end(process) for process in joined]:
        assert output["devices"] == 2 * count
        assert output["answer"] == alone
        assert output["half"] == 0.5  # a program that runs once, on a device of the process


def killed_and_resumed(file, moments, **settings):
    """Kill a sweep after each of these numbers of reports, carry on, and end it."""
    settings |= {"checkpoint": str(file), "every": 0.0, "target": 0.02}
    for reports, pause in moments:
        process = begin(**settings)
        seen = 0
        for line in process.stderr or ():
            seen += line.strip().isdigit()
            if seen >= reports:
                break
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return end(begin(**settings))


def moments(count):
    dice = random.Random(5)
    return [(dice.randint(1, 4), dice.uniform(0, 0.1)) for _ in range(count)]


@pytest.mark.parametrize("count", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_moments(alone, tmp_path, count):
    output = killed_and_resumed(tmp_path / "point.npz", moments(count), chunk=1024)
    assert output["answer"] == alone
    assert output["notes"] and "carried on at point" in output["notes"][0]
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith(".")] == ["point.npz"]


def test_carried_on_with_other_devices_and_chunks(alone, tmp_path):
    file = tmp_path / "point.npz"
    killed_and_resumed(file, moments(1), chunk=512)  # ends too: nothing is left to do
    output = end(begin(checkpoint=str(file), devices=2, chunk=2048))
    assert output["answer"] == alone


def test_a_checkpoint_of_another_sweep_is_refused(tmp_path):
    file = tmp_path / "point.npz"
    end(begin(checkpoint=str(file), every=0.0, count=9, top=True))
    process = begin(checkpoint=str(file), count=10, top=True)
    _, err = process.communicate(timeout=300)
    assert process.returncode and "of another sweep" in err.splitlines()[-1]
