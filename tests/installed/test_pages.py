"""Every command that README and docs print runs, and prints what the page prints.

A command with a name that stands for the reader's own (MODEL, FILE.csv) is run with a real one.
With ``--rewrite`` what is printed takes the place of what the pages have, cuts (`...`) kept.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.installed.pages import PAGES, ROOT, Command, commands, difference, rewritten
from tests.installed.program import Ended, call, program
from tests.installed.runs import LOGGED, reader
from tests.installed.test_verbs import ASKED

# asked in test_verbs.py, some with a picture that other pages leave out
VERBS = {f"infer-jax {row.words}" for row in ASKED.values()}
EVERY = [command for page in PAGES for command in commands(page)]
CALIBRATE = (
    "infer-jax calibrate runs/*.json --config llama-3.1-8b --hardware h100_sxm --tp 1"
    " --out my_h100.toml"
)
LOG = (
    f"infer-jax calibrate {LOGGED.name} --config llama-3.1-8b --hardware rtx_pro_6000 --tp 1"
    " --prompts 100 --out my_server.toml"
)
PROFILES = {"my_h100.toml": CALIBRATE, "my_server.toml": LOG}  # and what writes each
# what stands for the reader's own, and what is taken for it
REAL = {
    r"\bMODEL\b": "llama-3.1-8b",
    r"\bH\b": "h100_sxm",
    r"\bVERB\b": "estimate",
    r" \[.*?\]": "",  # an option that may be left out
    r"(\w+)(\|\w+)+": r"\1",  # one of several words
    r"(check) FILE\.csv": rf"\1 {ROOT}/tests/golden/offloading_policies.csv",
    r"(check-search) FILE\.csv": rf"\1 {ROOT}/tests/golden/offloading_search.csv",
    r"(calibrate runs.*) --tp 8 .*": r"\1 --tp 1 --out my_h100.toml",  # as the runs at hand were
    r"(kernels\.py fits)$": r"\1 h20 h800",  # of the tables at hand; others need a package
    r"(measure --out \S+)$": r"\1 --toy",  # as the page says: a minute on a CPU
}
# those of a minute and more, which run with --slow, by how they begin
SLOW = {
    "infer-jax calibrate RTXPRO6000": "fits replays; tests/cli has a made log, with its replay",
    "infer-jax codesign --model deepseek-v3": "a loop of designs of a large model; the files run",
    "infer-jax fleet llama-3.1-8b --hardware h100_sxm --hardware l40s": "a week of policies twice",
    "infer-jax fleet llama-3.1-8b --hardware h100_sxm --traffic examples/traffic.toml": (
        "a week of policies, a minute and a half; a morning of them runs, with its replays"
    ),
    "infer-jax measure": "times kernels for a minute, as test_verbs.py does",
    "infer-jax replay llama-3.1-8b --hardware my_server.toml": "needs the calibration above",
    "python benchmarks/": "measures speed for minutes",
    "python experiments/chapter.py": "a search of pools at every speed, on four machines",
    "python experiments/codesign.py cases": "nine designs with two estimators each",
    "python experiments/codesign.py lifetimes": "a design for every number of tokens served",
    "python experiments/economics.py claims": "a minute of fronts; tests/golden has some",
    "python experiments/economics.py tables": "a minute of compiling; tests/golden has the tables",
    "python experiments/fleet_claims.py": "four minutes of compiling, in tests/golden by source",
    "python experiments/fleets.py --seed 50": "fifty days of replays; tests/referee has one",
    "python experiments/kernels.py check": "as tests/golden does",
    "python experiments/kernels.py tables": "half a minute of compiling, as tests/golden does",
    "python experiments/kernels.py fits": "fits the curves of each system anew",
    "python experiments/offloading.py check-search": "as tests/golden does",
    "python experiments/offloading.py fit": "fits from many starts",
    "python experiments/offloading.py tables": "a search for every cell; tests/golden has most",
    "python experiments/offloading.py figures": "a search for every point",
    "python experiments/partitioning.py": "a minute of compiling; tests/golden has the tables",
    "python experiments/scheduler.py": "36 to 1,000 replays; tests/referee has some of each",
    "python experiments/power.py": "two fits for each server; tests/golden has its parts",
    "python experiments/silicon.py": "searches of chips; tests/golden has their pages",
    "python experiments/validation.py": "two minutes of CPU; tests/golden has its parts",
}


class Done(NamedTuple):
    """A command that has ended, and the folder it ran in."""

    ended: Ended
    folder: Path


def real(command: Command) -> str:
    """The command with real names."""
    text = command.text
    for pattern, name in REAL.items():
        text = re.sub(pattern, name, text)
    return text


def beginning(table: dict[str, str], text: str) -> str:
    """The entry of the longest beginning of ``text``, or nothing."""
    return table[max(fit, key=len)] if (fit := [x for x in table if text.startswith(x)]) else ""


def question(text: str) -> str:
    """A command without the files that it writes."""
    return re.sub(r" --out \S+", "", text)


def cases() -> Iterator[object]:
    """Each question with all its places, as the command that writes the most files.

    Those that share a file run in one process.
    """
    asked: dict[str, list[Command]] = {}
    for command in EVERY:
        asked.setdefault(question(real(command)), []).append(command)
    verbs = {*map(question, VERBS)}
    for same, places in asked.items():
        if same in verbs and not any(place.shown for place in places):
            continue  # asked in test_verbs.py
        text = max(map(real, places), key=lambda words: words.count(" --out "))
        name = next((words for file, words in PROFILES.items() if file in text), text)
        marks = [pytest.mark.slow] if beginning(SLOW, text) else []
        short = text.replace(str(ROOT), "").replace("/", "\\")
        yield pytest.param(name, text, places, id=short, marks=marks)


@pytest.fixture(scope="session")
def run(home, imported, tmp_path_factory):
    """Run a command of a page once, in a folder with the files that the pages speak of."""
    done: dict[str, Done] = {}
    env = home | {"COLUMNS": "100"}

    def once(text: str) -> Done:
        if text in done:
            return done[text]
        folder = tmp_path_factory.mktemp("page")
        reader(folder)
        for file, writes in PROFILES.items():
            if f"--hardware {file}" in text:
                shutil.copy(once(writes).folder / file, folder)
        first, *rest = shlex.split(text)
        words: list[str] = []
        for word in rest:
            words += sorted(glob(word, root_dir=folder)) if "*" in word else [word]
        if rest == ["--install-completion"]:  # asks which shell it was called by
            words = ["bash", "-c", f"{shlex.join([str(program()), *rest])}; exit $?"]
            ended = call(words, folder, env, LONGEST)
        elif first == "infer-jax":
            ended = imported.call(words, folder, env["COLUMNS"], LONGEST)
        else:
            ended = call([sys.executable, *words], folder, env, LONGEST)
        done[text] = Done(ended, folder)
        return done[text]

    return once


LONGEST = 4 * 3600.0  # seconds


@pytest.mark.parametrize(("name", "text", "places"), list(cases()))
def test_a_page_prints_what_the_command_prints(name, text, places, run, request):
    if LOGGED.name in text and not LOGGED.is_dir():
        pytest.skip(f"no measured files in {LOGGED}")
    ended, _ = run(text)
    where = "\n".join(map(str, places))
    if ended.code == 2 and "aiconfigurator-core is 'not installed'" in ended.err:
        pytest.skip("aiconfigurator-core is not installed")
    assert "Traceback" not in ended.err, f"{where}\n{ended.err}"
    assert ended.code == 0, f"{where}\nexit code {ended.code}: {ended.err}"
    for place in places:
        differs = difference(place.shown, ended.out)
        if differs and request.config.getoption("--rewrite"):
            assert rewrite(place, ended.out), f"{place}\nmore than numbers differ\n{differs}"
            continue
        assert not differs, f"{place}\n{differs}"


def rewrite(place: Command, out: str) -> bool:
    """Put what was printed on the page, whether it differs in more than its numbers or not."""
    fresh = rewritten(place.shown, out)
    if fresh is None:
        return False
    page = ROOT / place.page
    lines = page.read_text(encoding="utf-8").splitlines()
    at = slice(place.begins - 1, place.begins - 1 + len(place.shown))
    assert tuple(lines[at]) == place.shown, f"{place}: the page has changed meanwhile"
    lines[at] = fresh
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return not difference(fresh, out)


def test_pages_are_read_whole():
    """Every mention of the program in a line that begins a command is one of ours."""
    result = {(command.page, command.line) for command in EVERY}
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if re.match(r"\s*(infer-jax|python3? (experiments|examples|benchmarks)/)\S* ?\S", line):
                assert (name, number) in result, f"{name}:{number}: {line}"


def test_tables_of_exceptions_speak_of_commands_that_are_there():
    texts = [real(command) for command in EVERY]
    for begin in SLOW:
        assert any(text.startswith(begin) for text in texts), f"no page has {begin}"
    assert {*PROFILES.values()} <= {*texts}
    assert len(EVERY) > 80 and sum(bool(command.shown) for command in EVERY) > 5


def test_a_difference_is_seen():
    out = "a 1.00 x\nb 2,000\n\nc 3\nd 4.0e+07\n"
    for shown in ("a  1.01 x", "...\nb 2,001\nc 3", "a 1.00 x\n...\nd 4.1e+07", "b 2000\n───\nc 3"):
        assert not difference(shown.splitlines(), out), shown
    wrong = ("a 1.02 x", "a 1.00 x\nc 3", "c 3\n...\na 1.00 x", "d 4.2e+07", "b 2,003", "e", "c 4")
    for shown in wrong:
        assert "the command prints" in difference(shown.splitlines(), out), shown


def test_a_block_is_rewritten_between_its_cuts():
    out = "a 1.00 x\nb 2,000\n\nc 3 of memory\nd 4.0e+07\n"
    shown = ["a 9.9 x", "...", "  c 5 of launches", "───"]
    assert rewritten(shown, out) == ["a 1.00 x", "...", "  c 3 of memory", "───"]
    assert rewritten(["quite another thing"], out) is None
    assert not difference(rewritten(["...", "b 1", "c 1 of caches"], out) or [], out)
