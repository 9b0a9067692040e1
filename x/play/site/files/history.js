// Draws the time line: a row for each worker, with its waits and holds.
import { historyFor } from "./model.js";

const rowHeight = 20, names = 64, axis = 22, mostRows = 12;

export function drawHistory(canvas, model, width) {
  canvas.begin(width);
  const from = Math.max(0, model.at - historyFor), x = (at) => names + ((Math.max(at, from) - from) / historyFor) * (width - names - 4);
  const workers = [...model.workers.values()].sort((a, b) => a.order - b.order).slice(-mostRows);
  const height = workers.length * rowHeight + axis;
  for (let s = Math.ceil(from / 5000) * 5000; s <= from + historyFor; s += 5000) {
    canvas.part("grid " + s, "line", { x1: x(s), x2: x(s), y1: 0, y2: height - axis, class: "grid" });
    canvas.text("second " + s, x(s), height - 6, s / 1000 + " s", s > from + historyFor - 1000 ? "far" : "");
  }
  const lanes = laneOf(model);
  workers.forEach((w, row) => {
    const top = row * rowHeight;
    canvas.text("name " + w.name, 0, top + 14, w.name, "row-name");
    for (const span of model.spans) {
      if (span.worker !== w.name || span.gate === "arbiter" || (span.to ?? model.at) < from) continue;
      const [lane, of] = lanes(w, span.gate);
      const begin = x(span.from), wide = Math.max(span.kind === "hold" ? 1.5 : 0, x(span.to ?? model.at) - begin);
      if (wide === 0) continue;
      const h = span.kind === "wait" ? 4 : of > 1 ? 7 : 13;
      const y = of > 1 ? top + 2 + lane * 8 + (7 - h) / 2 : top + 9.5 - h / 2;
      canvas.part(`span ${w.name} ${span.gate} ${span.kind} ${span.from}`, "rect", { x: begin.toFixed(1), y, width: wide.toFixed(1), height: h, rx: Math.min(3, h / 2), class: `${span.kind} k${w.color}` });
    }
    for (const m of model.marks) {
      if (m.worker !== w.name || m.at < from) continue;
      canvas.part(`mark ${w.name} ${m.at}`, "line", { x1: x(m.at), x2: x(m.at), y1: top + 2, y2: top + 17, class: `mark k${w.color}${m.bad ? " bad" : ""}` });
    }
  });
  canvas.end(height);
}

// laneOf returns a function that returns at which of how many lanes of a row a gate is.
function laneOf(model) {
  const layout = model.lesson.layout;
  if (layout === "table") return (w, gate) => [gate === "fork " + w.order ? 0 : 1, 2];
  const gates = [...model.gates.values()].filter((g) => g.id !== "resource");
  return (_, gate) => [model.gate(gate)?.index ?? 0, gates.length];
}
