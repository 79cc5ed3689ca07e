"""The page of a report: plan, launch commands, charts and sources."""

import platform
import shlex
import sys
from collections.abc import Mapping

import jax

import infer_jax
from infer_jax.catalog.systems import profiles_folder
from infer_jax.estimators import Limit
from infer_jax.estimators.registry import variant
from infer_jax.launch import Launch
from infer_jax.pages import page as made
from infer_jax.results import numbers
from infer_jax.results.wording import by_command
from infer_jax.specs import leaves, outputs
from infer_jax.verbs import inputs, report_sections
from infer_jax.verbs.report_answers import Answers, Limits, lead, met, phases


def page(answers: Answers, limits: Limits) -> str:
    """The page."""
    asked = answers.asked
    sections = (
        _plan(answers),
        _flags(answers),
        report_sections.frontier(answers),
        report_sections.time(answers),
        report_sections.memory(answers),
        report_sections.sensitivity(answers),
        report_sections.roofline(answers),
        _sources(answers),
    )
    title = f"{asked.model.name} on {asked.system.title}"
    return made.page(title, lead(answers, limits), sections)


def _plan(answers: Answers) -> made.Section:
    estimate, work = answers.estimate, answers.work
    mark = answers.trusted.mark
    rows = [
        (x.title, x.value(estimate, answers.asked.hardware.power), x.printed_unit)
        for x in outputs(estimate, view="report")
    ]
    limits = [
        (f"{name}, {title}", *_sizes(name, limit), met(limit.need, limit.capacity))
        for title, phase in phases(answers)
        for name, limit in phase.limits.items()
        if float(limit.need) or float(limit.capacity)
    ]
    body = made.table(
        ("answer", "value", "unit"),
        [(n, mark + numbers.or_unknown(x, 4), u) for n, x, u in rows],
        (0, 2),
    ) + made.table(("limit", "need", "capacity", ""), limits, (0, 3))
    cached = f", {float(work.prefix):g} tokens of the prompt cached" if float(work.prefix) else ""
    about = (
        f"{answers.chosen.why} Requests of {float(work.isl):g} tokens in and {float(work.osl):g} "
        f"out{cached}. {answers.trusted.says}"
    )
    return made.Section("plan", "The plan", about, body)


def _sizes(name: str, limit: Limit) -> tuple[str, str]:
    said = numbers.size if name.endswith("memory") else numbers.digits
    return said(limit.need), said(limit.capacity)


def _flags(answers: Answers) -> made.Section:
    body = "".join(_launch(launch) for launch in answers.launches)
    about = (
        "What starts the plan: degrees, lengths, requests, formats, drafts. Ports, names and all "
        "else are yours."
    )
    return made.Section("flags", "The plan as flags of an engine", about, body)


def _launch(launch: Launch) -> str:
    body = made.heading(f"{launch.engine} {launch.version}")
    if launch.missing:
        return body + made.items(f"Not printed: {why}." for why in launch.missing)
    for step in launch.steps:
        body += made.paragraph(f"{step.where[:1].upper()}{step.where[1:]}:" if step.where else "")
        body += made.code(step.command)
    for name, text in launch.files.items():
        body += made.paragraph(f"{name}:") + made.code(text)
    return body + made.items((*launch.notes, f"Options: {launch.source}."))


def _sources(answers: Answers) -> made.Section:
    asked, system = answers.asked, answers.asked.system
    shipped = system.path.resolve().parent == profiles_folder().resolve()
    profile = f"{system.path.name}, shipped" if shipped else str(system.path)
    files = [
        ("command", shlex.join(["infer-jax", *sys.argv[1:]]) if by_command() else "ij.report"),
        ("infer_jax", f"{infer_jax.__version__}, jax {jax.__version__}, "
         f"Python {platform.python_version()}, 64-bit numbers"),
        ("model", f"{asked.model.name}: {asked.model.source}"),
        ("formats", asked.model.quantisation),
        ("hardware", f"{system.title}: profile {profile}"),
        ("price", f"{float(asked.hardware.price):g} USD/h per GPU, {asked.price_source}"),
        *(
            (f"estimator {name}", f"{variant(name).summary}; {variant(name).source}. For: {used}.")
            for name, used in (
                (answers.name, "the plan, time and sensitivity"),
                ("economics.planned", "the frontier"),
                ("kernels", "the roofline"),
            )
        ),
        ("memory", "vLLM's own accounting; infer_jax.footprint, docs/memory.md"),
    ]  # fmt: skip
    facts = [
        (path, f"{float(value):.6g}", meta["unit"], _source(asked, path))
        for path, meta, value in leaves(asked.hardware)
    ]
    coefficients = [
        (path, f"{float(value):.6g}", meta["unit"], _coefficient(answers, path, meta))
        for path, meta, value in leaves(answers.estimator)
    ]
    heads = ("number", "value", "unit", "source")
    body = (
        made.table(("", ""), files, (0, 1))
        + made.items(answers.notes)
        + made.heading("Hardware")
        + made.table(heads, facts, (0, 2, 3))
        + made.folded(
            f"{len(coefficients)} coefficients of {answers.name}",
            made.table(heads, coefficients, (0, 2, 3)),
        )
    )
    about = "Every number of this page follows from these by the estimators named."
    return made.Section("sources", "Where the numbers are from", about, body)


def _source(asked: inputs.Given, path: str) -> str:
    if path == "price":
        return asked.price_source
    return asked.system.sources.get(path, "not in the profile")


def _coefficient(answers: Answers, path: str, meta: Mapping[str, object]) -> str:
    table = answers.name.partition(".")[0]
    cited = answers.asked.system.sources.get(f"{table}.{path}")
    return cited or f"{meta['doc']}; {variant(answers.name).source}"
