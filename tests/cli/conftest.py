"""Every command of these tests runs in a folder of its own."""

import os

import pytest


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    # commands then leave the devices of this process, which other tests use, as they are
    monkeypatch.setenv("JAX_PLATFORMS", os.environ.get("JAX_PLATFORMS") or "cpu")
