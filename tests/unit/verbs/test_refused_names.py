"""What is refused is named as the caller wrote it: a verb's argument or a command's option."""

import pytest

import infer_jax as ij
from infer_jax.errors import InputError
from tests.cli.running import run

POINT = ("llama-3.1-8b", "h100_sxm")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: ij.memory("lama-3.1-8b", POINT[1]),
            "memory: config is 'lama-3.1-8b'; allowed",
        ),
        (lambda: ij.memory(POINT[0], "h1000"), "memory: hardware is 'h1000'; allowed: h100_sxm"),
        (lambda: ij.memory(*POINT, quant="fp9"), "memory: quant is 'fp9'; allowed: bf16"),
        (lambda: ij.memory(*POINT, tp=1).plot("x.xyz"), "plot: out is 'x.xyz'; allowed: a name"),
        (
            lambda: ij.replay(*POINT, tp=1, trace="none.jsonl"),
            "none.jsonl: no such file or directory; allowed: the path of a file that can be read",
        ),
        (lambda: ij.replay(*POINT, tp=1), "Give concurrency=64, or request_rate=8, or trace"),
    ],
)
def test_a_verb_names_its_arguments(call, says):
    with pytest.raises(InputError) as wrong:
        call()
    assert says in str(wrong.value)


def test_a_command_names_its_options():
    ran = run("memory", "lama-3.1-8b", "--hardware", "h100_sxm")
    assert ran.code == 2 and ran.err.startswith("infer-jax: CONFIG is 'lama-3.1-8b'; allowed: ")
    ran = run("memory", POINT[0], "--hardware", "h1000")
    assert ran.code == 2 and ran.err.startswith("infer-jax: --hardware is 'h1000'; allowed: h100")
    assert ran.err.count("\n") == 1
