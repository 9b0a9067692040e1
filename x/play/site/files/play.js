// The page: its controls, its captions and the worker that runs the Go program.
import { Canvas, draw } from "./draw.js";
import { drawHistory } from "./history.js";
import { Model } from "./model.js";

const $ = (id) => document.getElementById(id);
const speeds = [0.1, 0.25, 0.5, 1, 2, 4];
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const stage = new Canvas($("stage")), history = new Canvas($("history"));
const worker = new Worker("worker.js");
let lessons = [], lesson = null, settings = {}, model = null, running = false, changed = true;

worker.onmessage = ({ data }) => {
  if (data.fault) return fail(data.fault);
  if (data.ready) {
    lessons = data.ready;
    showLessons();
    return open();
  }
  for (const event of data.events) receive(event);
  if (model) model.tick(data.at);
  changed = true;
};
worker.onerror = (event) => fail(event.message || "its files are missing");

function fail(why) {
  $("loading").hidden = true;
  $("trouble").hidden = false;
  $("trouble").textContent = `The playground cannot run: ${why}. A sema that was built without it has only this page: run "make play" in the repository and build again.`;
}

// showLessons fills the navigation.
function showLessons() {
  $("lessons").replaceChildren(...lessons.map((l) => {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = "#" + l.id;
    link.textContent = l.title;
    item.append(link);
    return item;
  }));
  $("loading").hidden = true;
  $("lesson").hidden = false;
}

// open opens the lesson that the address names: #table&strategy=Naive.
function open() {
  if (!lessons.length) return; // the program is being loaded
  const [id, ...pairs] = location.hash.slice(1).split("&");
  lesson = lessons.find((l) => l.id === id) || lessons[0];
  settings = Object.fromEntries(lesson.choices.map((c) => [c.id, c.default]));
  for (const [key, value] of new URLSearchParams(pairs.join("&"))) {
    const choice = lesson.choices.find((c) => c.id === key);
    if (choice && allows(choice, value)) settings[key] = value;
  }
  document.title = lesson.title + " · Sema playground";
  $("title").textContent = lesson.title;
  $("teaches").textContent = lesson.teaches;
  for (const link of $("lessons").querySelectorAll("a")) {
    if (link.hash === "#" + lesson.id) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "center" }); // the list scrolls on a phone
    } else link.removeAttribute("aria-current");
  }
  $("code").replaceChildren(...highlight(lesson.code));
  showSettings();
  showCommands();
  start();
  run(!calm.matches);
}
addEventListener("hashchange", open);

function allows(choice, value) {
  if (choice.options) return choice.options.some((o) => o.value === value);
  return /^\d+$/.test(value) && +value >= choice.least && +value <= choice.most;
}

// start starts the lesson anew with the settings.
function start() {
  worker.postMessage({ request: { lesson: lesson.id, with: settings } });
}

function run(on) {
  running = on;
  document.body.classList.toggle("running", on);
  $("run").querySelector("span").textContent = on ? "Pause" : "Run";
  $("step").disabled = on;
  $("caption").setAttribute("aria-live", on ? "off" : "polite"); // too many to read while it runs
  worker.postMessage({ running: on });
}

function step() {
  if (!running) worker.postMessage({ step: true });
}

// receive applies an event of the program.
function receive(event) {
  if (event.kind === "started") {
    model = new Model(lesson, { ...settings });
    stage.clear();
    history.clear();
    $("steps").replaceChildren();
    $("report-card").hidden = true;
    $("caption").classList.remove("alarm");
    readUntil = 0;
    return;
  }
  if (!model) return;
  model.apply(event);
  if (event.report) {
    $("report").textContent = event.report;
    $("report-card").hidden = false;
  }
  const alarm = event.kind === "report" || event.kind === "lost" || event.kind === "failed" || event.kind === "wrote" && (!event.ok || event.caption.startsWith("Lost"));
  if (event.caption) explain(event.caption, alarm, alarm || event.kind === "note");
  const text = event.caption || words(event);
  if (text) log(event.at, text, alarm);
}

// explain shows a caption. One that teaches stays long enough to be read, unless another one follows:
// the steps have those that are not shown.
let readUntil = 0;
function explain(text, alarm, teaches) {
  const now = performance.now();
  if (running && !teaches && now < readUntil) return;
  readUntil = teaches ? now + Math.min(6000, 1500 + 35 * text.length) : 0;
  $("caption").textContent = text;
  $("caption").classList.toggle("alarm", alarm);
}

// words returns an event without a caption in words, if it is a step.
function words(e) {
  if (lesson.layout === "buffer" && e.kind !== "asked" || lesson.layout === "bucket" && e.kind === "released") return "";
  const at = e.gate && e.gate !== "pool" ? (/\d$/.test(e.gate) ? " " : " the ") + e.gate : "";
  const n = e.n > 1 ? ` (${e.n})` : "";
  switch (e.kind) {
    case "asked": return `${e.worker} asks for${at || " a permit"}${n}`;
    case "acquired": return `${e.worker} acquires${at}${n}`;
    case "released": return `${e.worker} releases${at}${n}`;
    case "doing": return e.text && `${e.worker} ${e.text === "hungry" ? "is hungry" : e.text}`;
  }
  return "";
}

const mostSteps = 120;

function log(at, text, alarm) {
  const item = document.createElement("li"), time = document.createElement("time"), what = document.createElement("span");
  time.textContent = (at / 1000).toFixed(2) + " s";
  what.textContent = text;
  if (alarm) what.className = "alarm";
  item.append(time, what);
  $("steps").prepend(item);
  while ($("steps").childElementCount > mostSteps) $("steps").lastElementChild.remove();
}

// field returns a labelled control for a choice. change receives its new value.
function field(choice, value, change, prefix) {
  const label = document.createElement(choice.options ? "label" : "div");
  label.className = "field";
  label.dataset.choice = choice.id;
  label.append(choice.label);
  if (choice.options) {
    const select = document.createElement("select");
    select.name = choice.id;
    for (const o of choice.options) select.add(new Option(o.label, o.value, false, o.value === value));
    select.onchange = () => change(select.value);
    label.append(select);
    return label;
  }
  const group = document.createElement("span"), shown = document.createElement("output");
  group.className = "stepper";
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", prefix + choice.label);
  shown.textContent = value;
  const button = (sign, text, by) => {
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = sign;
    b.setAttribute("aria-label", `${text}: ${choice.label}`);
    b.onclick = () => {
      value = String(Math.min(choice.most, Math.max(choice.least, +value + by)));
      shown.textContent = value;
      change(value);
    };
    return b;
  };
  group.append(button("−", "Fewer", -1), shown, button("+", "More", 1));
  label.append(group);
  return label;
}

function showSettings() {
  const fields = lesson.choices.map((c) => field(c, settings[c.id], (value) => {
    settings[c.id] = value;
    window.history.replaceState(null, "", "#" + [lesson.id, ...lesson.choices.filter((x) => settings[x.id] !== x.default).map((x) => `${x.id}=${settings[x.id]}`)].join("&"));
    hideUnused();
    start();
  }, ""));
  $("settings").replaceChildren(...fields);
  hideUnused();
}

// hideUnused hides choices that apply to another setting only.
function hideUnused() {
  const all = [...lesson.choices, ...(lesson.commands || []).flatMap((c) => c.with || [])];
  for (const c of all) {
    if (!c.only) continue;
    const [id, value] = c.only.split("=");
    for (const f of document.querySelectorAll(`[data-choice="${c.id}"]`)) f.hidden = settings[id] !== value;
  }
}

function showCommands() {
  $("commands-card").hidden = !lesson.commands;
  $("commands").replaceChildren(...(lesson.commands || []).map((c) => {
    const form = document.createElement("form"), chosen = Object.fromEntries((c.with || []).map((w) => [w.id, w.default]));
    form.append(...(c.with || []).map((w) => field(w, w.default, (value) => { chosen[w.id] = value; }, c.label + ": ")));
    const button = document.createElement("button");
    button.textContent = c.label;
    form.append(button);
    form.onsubmit = (event) => {
      event.preventDefault();
      worker.postMessage({ request: { command: c.id, with: chosen } });
    };
    return form;
  }));
  hideUnused();
}

// highlight marks comments, texts and keywords of Go.
function highlight(code) {
  const pattern = /(\/\/[^\n]*)|("(?:[^"\\\n]|\\.)*")|\b(func|var|return|if|else|for|range|switch|case|default|defer|go|map|error|string|int64|int|nil|break)\b/g;
  const parts = [];
  let end = 0;
  for (const m of code.matchAll(pattern)) {
    const span = document.createElement("span");
    span.className = m[1] ? "comment" : m[2] ? "string" : "keyword";
    span.textContent = m[0];
    parts.push(code.slice(end, m.index), span);
    end = m.index + m[0].length;
  }
  return [...parts, code.slice(end)];
}

// The speeds, and the keyboard.
$("speeds").append(...speeds.map((s) => {
  const label = document.createElement("label"), input = document.createElement("input"), text = document.createElement("span");
  Object.assign(input, { type: "radio", name: "speed", value: s, checked: s === 1 });
  input.onchange = () => worker.postMessage({ speed: s });
  text.textContent = s + "×";
  label.append(input, text);
  return label;
}));
$("run").onclick = () => run(!running);
$("step").onclick = step;
$("restart").onclick = start;
addEventListener("keydown", (event) => {
  if (event.target.closest("button, select, input, a, pre, ol") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " ") run(!running);
  else if (event.key === "ArrowRight") {
    run(false);
    step();
  } else return;
  event.preventDefault();
});

// The page draws once per frame, and only after a change.
let width = 0, described = 0;
new ResizeObserver(() => { changed = true; }).observe($("stage").parentElement);
function frame(now) {
  if (changed && model) {
    changed = false;
    const inner = $("stage").getBoundingClientRect().width;
    if (inner > 0) width = inner;
    if (width > 0) {
      draw(stage, model, width);
      drawHistory(history, model, width);
    }
    $("clock").textContent = (model.at / 1000).toFixed(1) + " s";
    if (now - described > 1000) {
      described = now;
      $("stage-text").textContent = model.describe();
      showLegend();
    }
  }
  requestAnimationFrame(frame);
}
requestAnimationFrame(frame);

// showLegend names the colours of classes.
function showLegend() {
  const classes = new Map(model.classed ? [...model.workers.values()].map((w) => [w.class, w.color]) : []);
  const key = [...classes].map(([name, color]) => `${name}${color}`).join();
  if ($("legend-more").dataset.key === key) return;
  $("legend-more").dataset.key = key;
  $("legend-more").replaceChildren(...[...classes].map(([name, color]) => {
    const dot = document.createElement("i");
    dot.className = `key kind k${color}`;
    const item = document.createElement("span");
    item.append(dot, " " + name);
    return item;
  }));
}
