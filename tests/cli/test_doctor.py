"""The doctor names a device whose answers are not those stored; tests/installed has a sound one."""

import dataclasses
import json
import math

import jax
import pytest

from infer_jax import doctor
from tests.cli.running import run


@pytest.mark.parametrize("wrong", ["1.001", "inf"])
def test_a_wrong_answer_is_seen(monkeypatch, wrong):
    row = next(row for row in doctor.table() if row["variant"] == "level2")
    changed = dict(row, seconds=str(float(row["seconds"]) * float(wrong)))
    monkeypatch.setattr(doctor, "table", lambda: [changed])
    verdicts = doctor.examine(jax.devices()[:1])
    assert not any(v.agrees for v in verdicts)
    assert row["model"] in verdicts[0].row
    if wrong == "inf":
        assert math.isinf(verdicts[0].worst)
    else:
        assert verdicts[1].worst == pytest.approx(1 - 1 / 1.001, rel=1e-6)


def test_verb_names_the_device_and_exits_1(monkeypatch):
    good = doctor.Verdict("cpu:0 cpu", "float32", 1e-7, "a row", 24)
    bad = dataclasses.replace(good, device="gpu:1 broken", worst=0.5)
    monkeypatch.setattr("infer_jax.doctor.examine", lambda: [good])
    assert run("doctor").code == 0
    monkeypatch.setattr("infer_jax.doctor.examine", lambda: [good, bad])
    ran = run("doctor")
    assert ran.code == 1 and "gpu:1 broken is wrong in float32" in ran.out
    output = json.loads(run("doctor", "--json").out)
    assert [row["agrees"] for row in output["devices"]] == [True, False] and not output["agrees"]
