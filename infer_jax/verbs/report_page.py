"""The page of a report: what its template shows, section by section."""

import platform
import shlex
import sys
from collections.abc import Mapping

import jax

import infer_jax
from infer_jax.catalog.systems import profiles_folder
from infer_jax.estimators.known_errors import pools as trust_of_pools
from infer_jax.estimators.registry import variant
from infer_jax.pages import vega
from infer_jax.pages.decision import decision
from infer_jax.results import numbers
from infer_jax.results.wording import by_command
from infer_jax.specs import leaves
from infer_jax.verbs import inputs, report_sections as sections
from infer_jax.verbs.report_answers import Limits, ReportData, again, lead
from infer_jax.verbs.report_sections import Figure, PageTable

AGAIN = ("frontier", "estimate", "memory", "sensitivity")  # verbs whose commands it names


def page(answers: ReportData, limits: Limits) -> str:
    """The page."""
    model, work, held = answers.asked.model.name, answers.work, answers.held
    systems = {c.given.system.name: c.given.system.title for c in answers.picked.candidates}
    where = f"on {answers.asked.system.title}"
    if len(systems) > 1:
        where = f"on {', '.join([*systems][:-1])} or {[*systems][-1]}"
    outputs, limited = sections.plan(answers)
    cached = f", {float(work.prefix):g} tokens of the prompt cached" if float(work.prefix) else ""
    figures = {
        "time": [*sections.time(answers)],
        "memory": sections.memory(answers),
        "sensitivity": [*sections.sensitivity(answers)],
        "roofline": sections.roofline(answers),
    }
    return decision(
        answers.tradeoff,
        _drawn(figures),
        title=f"{model} {where}",
        lead=lead(answers, limits),
        asked=f"Requests of {float(work.isl):g} tokens in and {float(work.osl):g} out{cached}.",
        why=answers.chosen.why,
        systems=sections.systems(answers),
        outputs=outputs,
        limits=limited,
        launches=answers.launches,
        costs=sections.costs(answers),
        again_of={verb: again(answers, verb) for verb in AGAIN},
        context=f"{float(answers.engine.context):g}",
        short="" if held.fits else numbers.size(-held.slack),
        measured=bool(answers.asked.system.coefficients.get("kernels")),
        trusts=_trusts(answers),
        assumed=list(dict.fromkeys(answers.notes)),
        figures=figures,
        sources=_sources(answers),
        hardware=_facts(answers),
        coefficients=_coefficients(answers),
        name=answers.name,
    )


def _drawn(
    figures: Mapping[str, Figure | list[Figure] | list[Figure | str]],
) -> dict[str, vega.Spec]:
    """The charts of the sections by name."""
    every = [x for each in figures.values() for x in (each if isinstance(each, list) else [each])]
    return {x.name: x.spec for x in every if isinstance(x, Figure)}


def _trusts(answers: ReportData) -> list[str]:
    """What is known of the errors on each system, and what is borrowed."""
    says = [c.trusted.says for c in answers.picked.candidates]
    if any(plan.pools for plan in answers.tradeoff.plans):
        says.append(f"{trust_of_pools()} Their intervals are not known, and not drawn.")
    if answers.picked.frontiers is not None and not answers.intervals:
        says.append(f"No 80 % interval is known for the plan on {answers.asked.system.name}.")
    return list(dict.fromkeys(says))


def _sources(answers: ReportData) -> PageTable:
    asked = answers.asked
    command = shlex.join(["infer-jax", *sys.argv[1:]]) if by_command() else "ij.report"
    used = "the plan, time and sensitivity"
    used = "every plan, time and sensitivity" if answers.picked.frontiers else used
    versions = f"jax {jax.__version__}, Python {platform.python_version()}, 64-bit numbers"
    rows = [
        ("command", command),
        ("infer_jax", f"{infer_jax.__version__}, {versions}"),
        ("model", f"{asked.model.name}: {asked.model.source}"),
        ("formats", asked.model.quantisation),
    ]
    for each in {c.given.system.name: c.given for c in answers.picked.candidates}.values():
        system = each.system
        shipped = system.path.resolve().parent == profiles_folder().resolve()
        profile = f"{system.path.name}, shipped" if shipped else str(system.path)
        price = f"{float(each.hardware.price):g} USD/h per GPU, {each.price_source}"
        rows += [("hardware", f"{system.title}: profile {profile}"), ("price", price)]
    for name, purpose in (
        (answers.name, used),
        ("economics.planned", "the frontier of an ideal server"),
        ("kernels", "the roofline"),
    ):
        about = variant(name)
        rows.append((f"estimator {name}", f"{about.summary}; {about.source}. For: {purpose}."))
    rows += [
        ("memory", "vLLM's own accounting; infer_jax.footprint, docs/memory.md"),
        ("charts", vega.credit()),
    ]
    return PageTable(("", ""), rows, (0, 1))


def _facts(answers: ReportData) -> PageTable:
    """Every number of the hardware with its source."""
    rows = [
        (path, f"{float(value):.6g}", meta["unit"], _source(answers.asked, path))
        for path, meta, value in leaves(answers.asked.hardware)
    ]
    return PageTable(("number", "value", "unit", "source"), rows, (0, 2, 3))


def _coefficients(answers: ReportData) -> PageTable:
    """Every number of the estimator with its source."""
    rows = [
        (path, f"{float(value):.6g}", meta["unit"], _coefficient(answers, path, meta))
        for path, meta, value in leaves(answers.estimator)
    ]
    return PageTable(("number", "value", "unit", "source"), rows, (0, 2, 3))


def _source(asked: inputs.Given, path: str) -> str:
    if path == "price":
        return asked.price_source
    return asked.system.sources.get(path, "not in the profile")


def _coefficient(answers: ReportData, path: str, meta: Mapping[str, object]) -> str:
    table = answers.name.partition(".")[0]
    cited = answers.asked.system.sources.get(f"{table}.{path}")
    return cited or f"{meta['doc']}; {variant(answers.name).source}"
