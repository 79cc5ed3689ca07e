"""Reading and writing files: every problem of size, encoding or syntax is one sentence."""

import contextlib
import json
import os

import pytest
from hypothesis import given, settings, strategies as st

from infer_jax.catalog.files import read_json, read_text, read_toml, write_text
from infer_jax.errors import InputError


def refused(action, *args):
    with pytest.raises(InputError) as caught:
        action(*args)
    said = str(caught.value)
    assert "\n" not in said and "allowed: " in said
    assert said.startswith(f"{args[0]}: ")
    return said


def test_text_comes_back_and_a_byte_order_mark_does_not(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "größe = 1\r\n".encode())
    assert read_text(path) == "größe = 1\r\n"
    assert read_text(str(path)) == read_text(path)


def test_missing_folder_and_unreadable(tmp_path):
    assert "no such file" in refused(read_text, tmp_path / "absent")
    assert "a folder" in refused(read_text, tmp_path)
    assert "not a directory" in refused(read_text, _made(tmp_path, b"x") / "below")


def test_size_is_checked_to_the_byte(tmp_path):
    path = _made(tmp_path, b"12345678")
    assert read_text(path, largest=8) == "12345678"
    assert "over 7 bytes" in refused(read_text, path, 7)


def test_an_endless_file_is_refused_without_reading_it_all():
    if not os.path.exists("/dev/zero"):
        pytest.skip("no /dev/zero")
    assert "over 100 bytes" in refused(read_text, "/dev/zero", 100)


def test_binary_and_other_encodings(tmp_path):
    assert "a binary file" in refused(read_text, _made(tmp_path, b"PK\x00\x01"))
    assert "a binary file" in refused(read_text, _made(tmp_path, "a = 1".encode("utf-16")))
    said = refused(read_text, _made(tmp_path, b"abc\xff"))
    assert "byte 3" in said and "0xff" in said


def test_json(tmp_path):
    assert read_json(_made(tmp_path, b'{"a": [1, 2.5, null]}')) == {"a": [1, 2.5, None]}
    assert "not JSON" in refused(read_json, _made(tmp_path, b'{"a": '))
    assert "not JSON" in refused(read_json, _made(tmp_path, b""))
    assert "list" in refused(read_json, _made(tmp_path, b"[1]"))


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_json_has_no_such_number(tmp_path, constant):
    said = refused(read_json, _made(tmp_path, f'{{"a": {constant}}}'.encode()))
    assert constant in said and "a finite number" in said


def test_deep_nesting_and_long_integers(tmp_path):
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert "nested too deeply" in refused(read_json, _made(tmp_path, deep))
    deep = b"a = " + b"[" * 100_000 + b"]" * 100_000
    assert "nested too deeply" in refused(read_toml, _made(tmp_path, deep))
    assert "not JSON" in refused(read_json, _made(tmp_path, b'{"a": ' + b"9" * 5000 + b"}"))
    assert "not TOML" in refused(read_toml, _made(tmp_path, b"a = " + b"9" * 5000))


def test_toml(tmp_path):
    assert read_toml(_made(tmp_path, b"[a]\nb = 1\n")) == {"a": {"b": 1}}
    assert "not TOML" in refused(read_toml, _made(tmp_path, b"[a\nb = 1"))
    assert "not TOML" in refused(read_toml, _made(tmp_path, b"a = 1\na = 2"))


def test_writing_replaces_whole_files_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "out.json"
    write_text(path, "first")
    write_text(path, "zweite Größe")
    assert path.read_text(encoding="utf-8") == "zweite Größe"
    assert os.listdir(tmp_path) == ["out.json"]


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out.txt"]


def test_a_place_that_cannot_be_written(tmp_path):
    assert "a writable place" in refused(write_text, tmp_path / "absent" / "out.txt", "x")
    (tmp_path / "folder").mkdir()
    assert "a writable place" in refused(write_text, tmp_path / "folder", "x")
    assert os.listdir(tmp_path) == ["folder"]


@settings(derandomize=True, max_examples=200, deadline=None)
@given(data=st.binary(max_size=60))
@pytest.mark.parametrize("read", [read_json, read_toml])
def test_any_bytes_are_read_or_refused(read, data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    with contextlib.suppress(InputError):
        assert isinstance(read(path), dict)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(value=st.dictionaries(st.text(max_size=5), _VALUES, max_size=4))
def test_json_written_is_json_read(value, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "round.json"
    write_text(path, json.dumps(value))
    assert read_json(path) == value


def _made(folder, data):
    path = folder / "input"
    path.write_bytes(data)
    return path
