// Draws the stage: gates, queues and workers. Elements are kept by key, so that a worker that
// has moved is animated by the style sheet.

const svgSpace = "http://www.w3.org/2000/svg";

// A Canvas keeps the elements of an SVG from one drawing to the next.
export class Canvas {
  constructor(svg) {
    this.svg = svg;
    this.kept = new Map();
    this.layers = ["back", "front"].map((name) => {
      const layer = document.createElementNS(svgSpace, "g");
      layer.setAttribute("class", "layer-" + name);
      svg.append(layer);
      return layer;
    });
  }

  clear() {
    for (const { element } of this.kept.values()) element.remove();
    this.kept.clear();
  }

  begin(width) { this.width = width; this.pass = (this.pass || 0) + 1; this.back = 0; }

  end(height) {
    for (const [key, kept] of this.kept) {
      if (kept.pass === this.pass) continue;
      kept.element.remove();
      this.kept.delete(key);
    }
    height = Math.ceil(height);
    if (this.height !== height || this.drawn !== this.width) {
      this.svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
      this.svg.style.height = height + "px";
      [this.height, this.drawn] = [height, this.width];
    }
  }

  // part draws an element. attributes.at is moved to, with the class "moves" smoothly.
  part(key, tag, attributes, text, parent) {
    let kept = this.kept.get(key);
    if (!kept) {
      kept = { element: document.createElementNS(svgSpace, tag), last: {} };
      (parent || this.layers[0]).append(kept.element);
      this.kept.set(key, kept);
    }
    kept.pass = this.pass;
    for (const [name, value] of Object.entries(attributes)) {
      const given = name === "at" ? `translate(${value[0].toFixed(1)}px, ${value[1].toFixed(1)}px)` : String(value);
      if (kept.last[name] === given) continue;
      kept.last[name] = given;
      if (name === "at") kept.element.style.transform = given;
      else kept.element.setAttribute(name, given);
    }
    if (text !== undefined && kept.text !== text) kept.element.textContent = kept.text = text;
    return kept.element;
  }

  text(key, x, y, text, css = "") { return this.part(key, "text", { x, y, class: css }, text); }

  // dot draws a worker.
  dot(worker, x, y, state, n = 1) {
    const gone = worker.gone !== undefined ? " gone" : "";
    const group = this.part("dot " + worker.name, "g", { class: `dot k${worker.color} ${state}${gone}`, at: [x, y] }, undefined, this.layers[1]);
    const short = worker.class === "philosopher" ? worker.name[0] : worker.name;
    this.part("dot circle " + worker.name, "circle", { r: worker.name.length > 2 ? 17 : 15 }, undefined, group);
    this.part("dot name " + worker.name, "text", { y: 4.5 }, short, group);
    if (n > 1) this.part("dot weight " + worker.name, "text", { x: 0, y: 29, class: "weight" }, "needs " + n, group);
  }
}

// draw draws a model with the layout of its lesson.
export function draw(canvas, model, width) {
  canvas.begin(width);
  canvas.end((layouts[model.lesson.layout] || drawQueues)(canvas, model, width));
}



// drawQueue draws waiters from right to left, the head at (x, y). It returns their number.
function drawQueue(canvas, model, waiting, x, y, room, direction = -1) {
  const apart = Math.min(42, room / Math.max(1, waiting.length));
  waiting.forEach((w, i) => canvas.dot(model.workers.get(w.worker) || { name: w.worker, color: 7 }, x + direction * i * apart, y, "waits", w.n));
  return waiting.length;
}

// drawBench draws workers that neither wait nor hold. It returns the height.
function drawBench(canvas, model, workers, x, y, width, title, key = "bench") {
  const columns = Math.max(1, Math.floor(width / 44));
  canvas.text(key + " title", x, y, title, "small");
  workers.forEach((w, i) => {
    if (w.idle) canvas.dot(w, x + 18 + (i % columns) * 44, y + 26 + Math.floor(i / columns) * 42, "idle");
  });
  return 50 + Math.floor((Math.max(1, workers.length) - 1) / columns) * 42;
}

// idlers returns all workers in order, and which of them are idle.
function idlers(model, matches = () => true) {
  return model.shown.filter(matches).map((w) => Object.assign(w, { idle: model.place(w.name).state === "idle" }));
}

// drawSlots draws permits as slots and returns their height. Holders that do not wait
// elsewhere are at their first slot.
function drawSlots(canvas, model, gate, x, y, columns, size) {
  const used = new Map();
  for (const h of gate.holders) h.slots.forEach((slot, i) => used.set(slot, { ...h, first: i === 0 }));
  const shown = Math.max(gate.capacity, ...[...used.keys()].map((slot) => slot + 1), 1);
  for (let i = 0; i < shown; i++) {
    const at = [x + (i % columns) * (size + 8), y + Math.floor(i / columns) * (size + 8)];
    const holder = used.get(i);
    const worker = holder && model.workers.get(holder.worker);
    const debt = i >= gate.capacity ? " debt" : "";
    canvas.part(`slot ${gate.id} ${i}`, "rect", { x: at[0], y: at[1], width: size, height: size, rx: 9, class: holder ? `slot used k${worker?.color ?? 7}${debt}` : "slot" + debt });
    if (!holder) continue;
    canvas.text(`ghost ${gate.id} ${i}`, at[0] + size / 2, at[1] + size / 2 + 4.5, holder.worker, "ghost mid");
    if (holder.first && worker && model.place(holder.worker).gate === gate && model.place(holder.worker).state === "holds") {
      canvas.dot(worker, at[0] + size / 2, at[1] + size / 2, "holds");
    }
  }
  return Math.ceil(shown / columns) * (size + 8) - 8;
}

function drawArrow(canvas, key, x, y) {
  canvas.part("arrow " + key, "path", { class: "arrow", d: `M${x - 7} ${y - 7}l9 7-9 7z` });
}

// drawQueues: each gate is a row with its queue at the left and its permits at the right.
function drawQueues(canvas, model, width) {
  const size = width < 480 ? 38 : 44;
  let y = 4;
  const across = width >= 640 ? model.gates.size : 1, room = (width - (across - 1) * 36) / across;
  const lanes = model.lesson.id === "inversion" ? ["high", "medium", "low"] : model.settings.order === "classes" ? ["paid", "free"] : [""];
  let lowest = y;
  for (const gate of model.gates.values()) {
    const left = across > 1 ? gate.index * (room + 36) : 0;
    const columns = Math.min(Math.max(gate.capacity, 1), width < 480 ? 2 : 4);
    const right = left + room - columns * (size + 8) + 8 - 2;
    const inUse = gate.holders.reduce((sum, h) => sum + h.n, 0);
    const queued = gate.waiting.length;
    canvas.text("label " + gate.id, left, y + 12, queued ? `${queued} in the queue` : "no queue");
    canvas.text("use " + gate.id, left + room - 2, y + 12, `${gate.label}: ${inUse} of ${gate.capacity} in use`, "strong far");
    const top = y + 24;
    const slots = drawSlots(canvas, model, gate, right, top, columns, size);
    const laneHeight = lanes.length > 1 ? 44 : 52;
    lanes.forEach((lane, i) => {
      const at = top + i * laneHeight + (lanes.length === 1 ? Math.min(slots, 52) / 2 : 20);
      const from = left + (lane ? 56 : 0);
      if (lane) canvas.text(`lane ${gate.id} ${lane}`, left, at + 4, lane, "small");
      canvas.part(`lane ${gate.id} ${lane} path`, "path", { class: "path", d: `M${from} ${at}H${right - 24}` });
      drawArrow(canvas, `${gate.id} ${lane}`, right - 18, at);
      let waiting = gate.waiting.filter((w) => !lane || model.workers.get(w.worker)?.class === lane);
      if (model.settings.order === "lifo") waiting = [...waiting].reverse();
      drawQueue(canvas, model, waiting, right - 46, at, right - 66 - from);
    });
    lowest = top + Math.max(slots, lanes.length * laneHeight) + 22;
    if (across === 1) y = lowest;
  }
  y = lowest;
  const all = idlers(model);
  return y + drawBench(canvas, model, all, 0, y + 10, width, model.lesson.id === "inversion" ? "neither waiting nor holding" : "busy elsewhere, without a permit") + 8;
}

// drawBuffer: producers at the left, slots in the middle, consumers at the right.
function drawBuffer(canvas, model, width) {
  const gate = model.gate("buffer");
  if (!gate) return 200;
  const size = Math.min(46, (width * .46 - 8) / Math.min(gate.capacity, 4) - 6);
  const columns = Math.min(gate.capacity, 4), rows = Math.ceil(gate.capacity / columns);
  const w = columns * (size + 6) - 6, x = (width - w) / 2, y = 34;
  canvas.text("label", width / 2, 14, `${gate.level} full + ${gate.capacity - gate.level} empty = ${gate.capacity}`, "strong mid");
  for (let i = 0; i < gate.capacity; i++) {
    const at = [x + (i % columns) * (size + 6), y + Math.floor(i / columns) * (size + 6)];
    canvas.part("slot " + i, "rect", { x: at[0], y: at[1], width: size, height: size, rx: 9, class: "slot" });
    if (i < gate.level) canvas.part("item " + i, "rect", { x: at[0] + size * .22, y: at[1] + size * .22, width: size * .56, height: size * .56, rx: 5, class: "token" });
  }
  const middle = y + (rows * (size + 6) - 6) / 2;
  drawArrow(canvas, "in", x - 14, middle);
  drawArrow(canvas, "out", x + w + 20, middle);
  const of = (kind) => gate.waiting.filter((q) => model.workers.get(q.worker)?.class === kind);
  const room = x - 70;
  drawQueue(canvas, model, of("producer"), x - 40, middle, room);
  drawQueue(canvas, model, of("consumer"), x + w + 44, middle, room, 1);
  const wait = (kind, text) => (of(kind).length ? `${of(kind).length} ${text}` : "");
  canvas.text("full", 0, 14, wait("producer", "wait: full"));
  canvas.text("none", width, 14, wait("consumer", "wait: empty"), "far");
  const below = Math.max(y + rows * (size + 6), middle + 26) + 20, half = width / 2 - 10;
  const left = drawBench(canvas, model, idlers(model, (m) => m.class === "producer"), 0, below, half, "producing", "makers");
  const right = drawBench(canvas, model, idlers(model, (m) => m.class === "consumer"), width / 2 + 10, below, half, "consuming", "users");
  return below + Math.max(left, right) + 4;
}

// drawRoom: the queue at the left, the lock as a room at the right.
function drawRoom(canvas, model, width) {
  const gate = model.gate("lock");
  if (!gate) return 200;
  const w = Math.min(290, width * .48), h = 138, x = width - w - 1, y = 24;
  const inside = gate.holders.map((held) => model.workers.get(held.worker)).filter(Boolean);
  const state = inside.length === 0 ? "" : inside[0].class === "writer" ? "writing" : "reading";
  canvas.part("room", "rect", { x, y, width: w, height: h, rx: 14, class: "room " + state });
  canvas.text("state", x + w / 2, 13, { "": "the lock is free", writing: "a writer is alone inside", reading: `${inside.length} reading together` }[state], "strong mid");
  const columns = Math.max(2, Math.floor((w - 30) / 46));
  const fit = Math.min(columns, Math.max(1, inside.length));
  inside.forEach((worker, i) => canvas.dot(worker, x + w / 2 + ((i % columns) - (fit - 1) / 2) * 46, y + (inside.length > columns ? 46 : h / 2) + Math.floor(i / columns) * 46, "holds"));
  canvas.text("queue", 0, 13, gate.waiting.length ? `${gate.waiting.length} waiting` : "nothing waits");
  const lane = (kind, at) => {
    canvas.part("lane " + kind, "path", { class: "path", d: `M0 ${at}H${x - 24}` });
    drawArrow(canvas, kind, x - 18, at);
    drawQueue(canvas, model, gate.waiting.filter((q) => model.workers.get(q.worker)?.class === kind), x - 46, at, x - 70);
    canvas.text("name " + kind, 0, at - 24, kind + "s", "small");
  };
  lane("reader", y + 46);
  lane("writer", y + 110);
  return y + h + 26 + drawBench(canvas, model, idlers(model), 0, y + h + 26, width, "outside");
}

// drawTable: philosophers in a circle, forks between them.
function drawTable(canvas, model, width) {
  const radius = Math.min(150, width * .33), cx = width / 2, cy = radius + 34;
  const workers = model.shown;
  const n = Math.max(5, workers.length);
  const angle = (i) => -Math.PI / 2 + (i * 2 * Math.PI) / n;
  const on = (r, a) => [cx + r * Math.cos(a), cy + r * Math.sin(a)];
  canvas.part("table", "circle", { cx, cy, r: radius - 34, class: "table" });
  workers.forEach((w, i) => {
    const plate = on(radius - 62, angle(i));
    canvas.part("plate " + i, "circle", { cx: plate[0], cy: plate[1], r: 13, class: "plate" });
  });
  for (let f = 0; f < n; f++) {
    const gate = model.gate("fork " + f);
    if (!gate) continue;
    const holder = gate.holders[0] && model.workers.get(gate.holders[0].worker);
    const home = angle(f) - Math.PI / n;
    const a = holder ? angle(holder.order) + (holder.order === f ? -1 : 1) * .2 : home;
    const at = on(holder ? radius - 30 : radius - 54, a);
    for (const q of gate.waiting) {
      const from = on(radius, angle(model.workers.get(q.worker)?.order ?? 0));
      canvas.part(`wants ${f} ${q.worker}`, "line", { x1: from[0], y1: from[1], x2: at[0], y2: at[1], class: "path " + (model.alarm ? "bad" : "wants") });
    }
    canvas.part("fork " + f, "g", { class: "moves", at });
    canvas.part("fork lines " + f, "path", { class: "fork" + (holder ? " held" : ""), d: "M-4.5 -9v5a4.5 4.5 0 0 0 9 0v-5M0 -9v21", transform: `rotate(${(a * 180) / Math.PI - 90})` }, undefined, canvas.kept.get("fork " + f).element);
  }
  workers.forEach((w, i) => {
    const [x, y] = on(radius, angle(i));
    const place = model.place(w.name).state;
    canvas.dot(w, x, y, w.doing === "eats" ? "holds" : place === "waits" ? "waits" : w.doing === "hungry" ? "holds" : "idle");
    const side = Math.abs(x - cx) < 20 ? "mid" : x < cx ? "far" : "";
    const [tx, ty] = side === "mid" ? [x, y - 24] : [x + (x < cx ? -24 : 24), y + 4];
    const held = [...model.gates.values()].filter((g) => g.id !== "arbiter" && g.holders.some((h) => h.worker === w.name)).length;
    const doing = w.doing === "hungry" ? (held ? `has ${held} of 2` : "hungry") : w.doing;
    if (width < 480 && side !== "mid") {
      const under = y > cy ? 33 : -41;
      canvas.text("name " + i, x, y + under, w.name, "strong mid");
      canvas.text("doing " + i, x, y + under + 15, doing, "small mid");
    } else {
      canvas.text("name " + i, tx, ty - (side === "mid" ? 0 : 6), side === "mid" ? `${w.name}: ${doing}` : w.name, "strong " + side);
      if (side !== "mid") canvas.text("doing " + i, tx, ty + 10, doing, "small " + side);
    }
  });
  const arbiter = model.gate("arbiter");
  const bottom = cy + radius + 40;
  if (arbiter) canvas.text("arbiter", cx, cy + 5, `arbiter: ${arbiter.holders.length} of ${arbiter.capacity}`, "mid small");
  else if (model.alarm) canvas.text("alarm", cx, cy + 5, "deadlock", "rejected mid");
  return bottom;
}

// drawBucket: requests queue at the left, tokens drip into the bucket, spent requests leave.
function drawBucket(canvas, model, width) {
  const gate = model.gate("api");
  if (!gate) return 200;
  const w = 124, h = 132, x = width * .62 - w / 2, y = 34;
  canvas.text("tokens", x + w / 2, 14, `${gate.level} of ${gate.capacity} tokens`, "strong mid");
  canvas.part("bucket", "path", { class: "room", d: `M${x} ${y}l12 ${h - 12}a12 12 0 0 0 12 12h${w - 48}a12 12 0 0 0 12-12l12-${h - 12}` });
  for (let i = 0; i < gate.capacity; i++) {
    const row = Math.floor(i / 2), at = [x + w / 2 + ((i % 2) - .5) * 40, y + h - 22 - row * 30];
    canvas.part("token " + i, "circle", { cx: at[0], cy: at[1], r: 11, class: i < gate.level ? "token" : "token spent" });
  }
  const middle = y + h / 2;
  canvas.part("in path", "path", { class: "path", d: `M0 ${middle}H${x - 14}` });
  canvas.part("out path", "path", { class: "path", d: `M${x + w + 14} ${middle}H${width}` });
  drawArrow(canvas, "in", x - 8, middle);
  drawArrow(canvas, "out", width - 4, middle);
  canvas.text("queue", 0, 14, gate.waiting.length ? `${gate.waiting.length} in the queue` : "no queue");
  canvas.text("served", width, middle + 40, "served", "far small");
  drawQueue(canvas, model, gate.waiting, x - 34, middle, x - 54);
  for (const worker of model.shown) {
    if (model.place(worker.name).state !== "waits") canvas.dot(worker, worker.gone ? width - 16 : x + w + 40, middle, "holds");
  }
  return y + h + 18;
}

// drawLease: machines at the left, the store in the middle, the resource at the right.
function drawLease(canvas, model, width) {
  const gate = model.gate("lease");
  if (!gate) return 200;
  const narrow = width < 560;
  const store = narrow ? { x: width - 178, y: 24, w: 178, h: 104 } : { x: width * .38, y: 70, w: 190, h: 110 };
  const target = narrow ? { x: 0, y: 292, w: width, h: 128 } : { x: width - 214, y: 24, w: 214, h: 212 };
  const box = (key, b, title, css = "") => {
    canvas.part("box " + key, "rect", { x: b.x, y: b.y, width: b.w, height: b.h, rx: 14, class: "room " + css });
    canvas.text("title " + key, b.x + b.w / 2, b.y + 22, title, "strong mid");
  };
  const last = model.writes.at(-1);
  const lost = model.settings.guard === "off" && isLost(model);
  model.shown.forEach((w, i) => {
    const b = narrow ? { x: 0, y: 12 + i * 136, w: 112, h: 112 } : { x: 0, y: 12 + i * 136, w: 128, h: 112 };
    const paused = w.doing === "paused";
    const holds = gate.holders.some((h) => h.worker === w.name), waits = gate.waiting.some((q) => q.worker === w.name);
    const from = [b.x + b.w, b.y + b.h / 2], to = [store.x, store.y + store.h / 2];
    canvas.part("path " + w.name, "path", { class: "path " + (paused ? "" : holds ? "has" : waits ? "wants" : ""), d: `M${from[0]} ${from[1]}C${from[0] + 40} ${from[1]} ${to[0] - 40} ${to[1]} ${to[0]} ${to[1]}` });
    box(w.name, b, "machine " + w.name, paused ? "bad" : holds ? "calm" : "");
    canvas.text("doing " + w.name, b.x + b.w / 2, b.y + b.h - 12, paused ? "paused" : holds ? "holds the lease" : waits ? "waits" : "idle", "small mid");
    canvas.dot(w, b.x + b.w / 2, b.y + 58, paused ? "idle" : waits ? "waits" : holds ? "holds" : "idle");
    if (!narrow) canvas.part("to resource " + w.name, "path", { class: "path", d: `M${from[0]} ${i ? 212 : 50}H${target.x}` });
    const write = model.writes.findLast((e) => e.worker === w.name);
    if (write && model.at - write.at < 700) {
      const f = (model.at - write.at) / 700, start = narrow ? [b.x + b.w / 2, b.y + b.h] : [from[0], i ? 212 : 50], goal = narrow ? [b.x + b.w / 2 + 40, target.y] : [target.x, start[1]];
      canvas.part("write of " + w.name, "rect", { x: start[0] + (goal[0] - start[0]) * f - 6, y: start[1] + (goal[1] - start[1]) * f - 6, width: 12, height: 12, rx: 3, class: `used k${w.color}` });
    }
    const since = model.at - (w.beat ?? -1e9);
    if (since < 450) {
      const f = since / 450;
      canvas.part("beat " + w.name, "circle", { cx: from[0] + (to[0] - from[0]) * f, cy: from[1] + (to[1] - from[1]) * f, r: 5, class: "beat" });
    }
  });
  box("store", store, "store");
  const holder = gate.holders[0];
  canvas.text("holder", store.x + store.w / 2, store.y + 48, holder ? `lease of ${holder.worker}` : "no lease", "mid");
  if (holder) {
    const left = Math.max(0, 1 - (model.at - (model.workers.get(holder.worker)?.beat ?? model.at)) / 3000);
    const w = store.w - 40;
    canvas.part("ttl back", "rect", { x: store.x + 20, y: store.y + 62, width: w, height: 8, rx: 4, class: "back" });
    canvas.part("ttl", "rect", { x: store.x + 20, y: store.y + 62, width: w * left, height: 8, rx: 4, class: "ttl" + (left < .5 ? " low" : "") });
    canvas.text("ttl text", store.x + store.w / 2, store.y + 90, left > 0 ? `expires in ${(left * 3).toFixed(1)} s` : "expired", "small mid");
  }
  box("resource", target, model.settings.guard === "off" ? "resource, no guard" : "resource with a guard", last && !last.ok || lost ? "bad" : "");
  const shown = narrow ? 3 : 6;
  model.writes.slice(-shown).forEach((write, i) => {
    const bad = !write.ok || lateIn(model, write);
    canvas.text("write " + i, target.x + target.w / 2, target.y + 52 + i * 25, `${write.worker} writes, fence …${String(write.n).slice(-3)}: ${write.ok ? (bad ? "lost update" : "accepted") : "rejected"}`, (bad ? "rejected" : "accepted") + " mid small");
  });
  if (!model.writes.length) canvas.text("write none", target.x + target.w / 2, target.y + 56, "no writes yet", "mid small");
  return narrow ? 432 : 264;
}

// lateIn reports whether a write came after one with a higher fence.
function lateIn(model, write) {
  return model.writes.some((w) => w.at < write.at && w.ok && w.n > write.n);
}

function isLost(model) {
  const last = model.writes.at(-1);
  return last && lateIn(model, last);
}

const layouts = { queue: drawQueues, buffer: drawBuffer, room: drawRoom, table: drawTable, bucket: drawBucket, lease: drawLease };
