"""The script that draws a page's charts is put together once, and a bad file is as none."""

import jax
import pytest

from infer_jax.pages import vega

vl_convert = pytest.importorskip("vl_convert")
SCRIPT = "window.vegaEmbed = 1; // \u00e9\n"


@pytest.fixture
def bundled(tmp_path, monkeypatch):
    """Entries of the bundles that were put together; an empty folder of programs."""
    entries = []

    def bundle(entry):
        entries.append(entry)
        return SCRIPT

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield entries
    jax.config.update("jax_compilation_cache_dir", before)


def stored(tmp_path):
    (file,) = (tmp_path / "programs").iterdir()
    return file


def test_the_library_is_put_together_once(bundled, tmp_path):
    assert [vega.library() for _ in range(3)] == [SCRIPT] * 3
    assert bundled == [vega.ENTRY]
    assert stored(tmp_path).read_bytes().endswith(SCRIPT.encode())


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data.replace(b"vegaEmbed = 1", b"vegaEmbed = 2"),
        lambda data: data.replace(b"Vega of vl-convert", b"Vega of vl-konvert"),
    ],
)
def test_a_damaged_library_is_put_together_again(bundled, tmp_path, harm):
    vega.library()
    file = stored(tmp_path)
    file.write_bytes(harm(file.read_bytes()))
    assert [vega.library(), vega.library()] == [SCRIPT] * 2
    assert len(bundled) == 2 and stored(tmp_path) == file
