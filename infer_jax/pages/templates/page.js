"use strict";
(() => {
  const all = JSON.parse(document.getElementById("charts").textContent);
  const { spec, axes } = all.tradeoff;
  const plans = spec.datasets.plans;
  const form = document.getElementById("controls");
  const plot = document.getElementById("plot");
  const panel = document.getElementById("point");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const host = (name) => document.querySelector(`.vega[data-chart="${name}"]`);
  const shownViews = {};
  let view = null, picked = null;

  const eachLegend = (one, change) => {
    if (one === null || typeof one !== "object") return;
    if (one.legend) change(one.legend);
    Object.values(one).forEach((part) => eachLegend(part, change));
  };

  const narrow = (chart) => {
    if (document.documentElement.clientWidth < 560) {
      const { x = {}, y = {} } = chart.encoding;
      if (y.axis && y.axis.labelLimit) y.axis.labelLimit = 145;
      if (x.field === "value") { // bars: room for the words at their ends
        const [low, high] = x.scale.domain;
        x.scale.domain = [low < 0 ? 1.5 * low : low, high > 0 ? 1.5 * high : high];
      }
      eachLegend([chart.encoding, chart.layer], (legend) => { legend.columns = 1; });
    }
    return chart;
  };

  const draw = async (name, chart) => {
    const place = document.createElement("div");
    const at = host(name);
    place.style.width = "100%";
    const old = [...at.childNodes];
    at.append(place);
    const made = await vegaEmbed(place, narrow(chart), {
      ast: true, renderer: "svg", actions: false, tooltip: { theme: dark.matches ? "dark" : "light" },
    });
    if (shownViews[name]) shownViews[name].finalize();
    shownViews[name] = made;
    old.forEach((node) => node.remove());
    return made.view;
  };

  const limit = (name) => {
    const value = parseFloat(form.elements[name].value);
    return value > 0 ? value : null;
  };
  const state = () => ({
    xkey: form.elements.x.value,
    ykey: form.elements.y.value,
    ttft: limit("ttft"),
    tpot: limit("tpot"),
    shown: [...form.querySelectorAll("[name=series]:checked")].map((box) => box.value),
    picked: picked === null ? [] : [picked],
  });

  const finite = (plan, key) => typeof plan[key] === "number";
  const seen = (now) => plans.filter((plan) =>
    now.shown.includes(plan.series) && finite(plan, now.xkey) && finite(plan, now.ykey));
  const within = (plan, now) =>
    (now.ttft === null || !finite(plan, "ttft") || plan.ttft <= now.ttft * 1.0000001) &&
    (now.tpot === null || plan.tpot <= now.tpot * 1.0000001);

  const redraw = async () => {
    const now = state();
    const chart = structuredClone(spec);
    for (const one of chart.params) one.value = now[one.name];
    for (const side of ["x", "y"]) {
      const { key, ...axis } = axes[side].find((one) => one.key === now[`${side}key`]);
      chart.encoding[side] = axis;
    }
    const banded = (plan) => finite(plan, `${now.xkey}_fast`) && finite(plan, `${now.ykey}_fast`);
    if (!seen(now).some(banded)) chart.layer = chart.layer.filter((one) => one.name !== "band");
    const there = (run) =>
      now.shown.includes(run.series) && finite(run, now.xkey) && finite(run, now.ykey);
    if (!spec.datasets.runs.some(there)) {
      chart.layer = chart.layer.filter((one) => one.name !== "runs");
    }
    if ({ speed: now.tpot, ttft: now.ttft }[now.xkey] == null) {
      chart.layer = chart.layer.filter((one) => !(one.name || "").startsWith("limit"));
    }
    eachLegend(chart.layer, (legend) => { legend.values = now.shown; });
    view = await draw("tradeoff", chart);
    view.addEventListener("click", (event, item) => {
      let datum = item && item.datum;
      if (datum && datum.datum) datum = datum.datum;
      if (datum && Number.isInteger(datum.id)) pick(datum.id);
    });
  };

  const said = (x) => (x === null || x === undefined ? "" :
    Number(x).toLocaleString("en", { maximumSignificantDigits: 3 }));
  const band = (plan, key) => (finite(plan, `${key}_fast`)
    ? ` (${[plan[`${key}_fast`], plan[`${key}_slow`]].sort((a, b) => a - b).map(said).join(" to ")})` : "");

  const tell = (plan, head) => {
    const rows = [["GPUs", said(plan.gpus)], ["requests in flight in each", said(plan.batch)]];
    const keys = [["speed", "tokens/s per user"], ["ttft", "TTFT, ms"], ["tpot", "TPOT, ms"],
      ["latency", "whole request, s"], ...axes.y.map((axis) => [axis.key, axis.title])];
    for (const [key, title] of keys) {
      if (finite(plan, key)) rows.push([title, said(plan[key]) + band(plan, key)]);
    }
    panel.querySelector("h3").textContent = `${head}${plan.group}: ${plan.plan}`;
    panel.querySelector("dl").replaceChildren(...rows.map(([name, value]) => {
      const row = document.createElement("div");
      const term = document.createElement("dt"), what = document.createElement("dd");
      term.textContent = name;
      what.textContent = value;
      row.append(term, what);
      return row;
    }));
    const command = panel.querySelector("pre");
    command.textContent = plan.command;
    command.hidden = !plan.command;
    panel.hidden = false;
  };

  const pick = (id, head = "") => {
    picked = id;
    tell(plans[id], head);
    if (view) view.signal("picked", [id]).run();
  };

  const changed = async () => {
    const now = state();
    const able = seen(now).filter((plan) => within(plan, now) && plan.line);
    const money = finite(plans.find((plan) => plan.line) || {}, "usd") ? "usd" : "usd_out";
    const best = able.reduce((a, b) => (a === null || b[money] < a[money] ? b : a), null);
    picked = best === null ? null : best.id;
    await redraw();
    if (best !== null) pick(best.id, "Cheapest shown within these limits: ");
    else {
      panel.querySelector("h3").textContent = "No plan that is shown is within these limits.";
      panel.querySelector("dl").replaceChildren();
      panel.querySelector("pre").hidden = true;
      panel.hidden = false;
    }
  };

  const step = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: "up", ArrowDown: "down" }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const now = state();
    const every = seen(now).filter((plan) => plan.line).sort((a, b) => a[now.xkey] - b[now.xkey]);
    if (!every.length) return;
    const groups = [...new Set(every.map((plan) => plan.group))];
    const here = picked === null ? every[0] : plans[picked];
    let group = Math.max(groups.indexOf(here.group), 0);
    if (by === "up" || by === "down") {
      group = (group + (by === "up" ? groups.length - 1 : 1)) % groups.length;
      const mine = every.filter((plan) => plan.group === groups[group]);
      const near = (plan) => Math.abs(plan[now.xkey] - here[now.xkey]);
      pick(mine.reduce((a, b) => (near(b) < near(a) ? b : a)).id);
      return;
    }
    const mine = every.filter((plan) => plan.group === groups[group]);
    let at = mine.findIndex((plan) => plan.id === here.id);
    at = at < 0 ? 0 : Math.min(Math.max(at + by, 0), mine.length - 1);
    pick(mine[at].id);
  };

  const start = async () => {
    document.documentElement.classList.add("scripted");
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", "Plans: arrow keys move from one to the next");
    plot.addEventListener("keydown", step);
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", (event) => {
      const box = event.target;
      if (box.name === "series" && !state().shown.length) box.checked = true; // one stays
      changed();
    });
    await redraw();
    const chosen = plans.find((plan) => plan.chosen);
    if (chosen) pick(chosen.id, "The plan: ");
    for (const [name, chart] of Object.entries(all.charts)) await draw(name, structuredClone(chart));
    dark.addEventListener("change", redraw);
    document.documentElement.dataset.drawn = "yes";
  };
  start();
})();
