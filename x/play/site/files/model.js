// The state of a lesson, from its events.

const kinds = {
  free: 0, paid: 1, reader: 0, writer: 1, producer: 0, consumer: 2, request: 0,
  high: 4, medium: 6, low: 0, "machine A": 0, "machine B": 1,
};

// historyFor is how long the time line reaches back, in milliseconds.
export const historyFor = 20000;

export class Model {
  constructor(lesson, settings) {
    this.lesson = lesson;
    this.settings = settings;
    this.at = 0;
    this.gates = new Map();
    this.workers = new Map();
    this.spans = []; // {worker, gate, kind: "wait" or "hold", from, to}
    this.marks = []; // {worker, at, bad}
    this.writes = [];
    this.alarm = false;
    this.joined = 0;
  }

  gate(id) { return this.gates.get(id); }

  // classed reports whether classes matter, and not single workers.
  get classed() { return !(this.lesson.id === "table" || this.lesson.id === "semaphore" && this.settings.order !== "classes"); }

  apply(e) {
    const gate = e.gate && this.gates.get(e.gate);
    const worker = e.worker && this.workers.get(e.worker);
    switch (e.kind) {
      case "gate":
        if (gate) gate.capacity = e.n || 0;
        else this.gates.set(e.gate, { id: e.gate, label: e.text, capacity: e.n || 0, level: 0, waiting: [], holders: [], index: this.gates.size });
        break;
      case "joined": {
        const color = this.classed ? kinds[e.class] ?? 7 : this.joined % 8;
        this.workers.set(e.worker, { name: e.worker, class: e.class, color, order: this.joined++, doing: "" });
        break;
      }
      case "left":
        if (worker) worker.gone = e.at;
        for (const g of this.gates.values()) {
          this.unqueue(g, e.worker, e.at);
          this.unhold(g, e.worker, e.at);
        }
        break;
      case "asked":
        gate.waiting.push({ worker: e.worker, n: e.n, since: e.at });
        this.spans.push({ worker: e.worker, gate: e.gate, kind: "wait", from: e.at });
        break;
      case "acquired":
        this.unqueue(gate, e.worker, e.at);
        gate.holders.push({ worker: e.worker, n: e.n, slots: this.freeSlots(gate, e.n) });
        if (this.lesson.layout !== "buffer") this.spans.push({ worker: e.worker, gate: e.gate, kind: "hold", from: e.at });
        break;
      case "failed":
        this.unqueue(gate, e.worker, e.at);
        this.marks.push({ worker: e.worker, at: e.at, bad: true });
        break;
      case "released":
      case "lost":
        this.unhold(gate, e.worker, e.at);
        if (this.lesson.layout === "buffer" || this.lesson.layout === "bucket") this.marks.push({ worker: e.worker, at: e.at });
        break;
      case "level":
        gate.level = e.n || 0;
        break;
      case "doing":
        if (worker) worker.doing = e.text || "";
        break;
      case "beat":
        if (worker) worker.beat = e.at;
        break;
      case "wrote":
        this.writes.push(e);
        this.marks.push({ worker: e.worker, at: e.at, bad: !e.ok });
        break;
      case "report":
        if (e.text === "deadlock suspected") this.alarm = true;
        break;
    }
  }

  unqueue(gate, worker, at) {
    gate.waiting = gate.waiting.filter((w) => w.worker !== worker);
    this.close(worker, gate.id, "wait", at);
  }

  unhold(gate, worker, at) {
    gate.holders = gate.holders.filter((h) => h.worker !== worker);
    this.close(worker, gate.id, "hold", at);
  }

  close(worker, gate, kind, at) {
    for (const span of this.spans) {
      if (span.worker === worker && span.gate === gate && span.kind === kind && span.to === undefined) span.to = at;
    }
  }

  // freeSlots returns the lowest slots that no holder covers.
  freeSlots(gate, n) {
    const used = new Set(gate.holders.flatMap((h) => h.slots));
    const slots = [];
    for (let i = 0; slots.length < n; i++) if (!used.has(i)) slots.push(i);
    return slots;
  }

  // tick moves the clock, and removes what is no longer shown.
  tick(at) {
    this.at = at;
    for (const [name, w] of this.workers) if (w.gone !== undefined && at - w.gone > historyFor) this.workers.delete(name);
    this.spans = this.spans.filter((s) => s.to === undefined || s.to > at - historyFor);
    this.marks = this.marks.filter((m) => m.at > at - historyFor);
  }

  // shown returns the workers on the stage, in order. Those that have ended leave it.
  get shown() {
    return [...this.workers.values()].filter((w) => w.gone === undefined || this.at - w.gone < 1200).sort((a, b) => a.order - b.order);
  }

  // place returns where a worker is: at a queue, or with a permit, or neither.
  place(name) {
    for (const gate of this.gates.values()) if (gate.waiting.some((w) => w.worker === name)) return { gate, state: "waits" };
    let found = null; // the last one, as in "cpu" of a worker that also holds the lock
    for (const gate of this.gates.values()) if (gate.holders.some((h) => h.worker === name)) found = { gate, state: "holds" };
    return found || { state: "idle" };
  }

  // describe returns the state in words.
  describe() {
    const parts = [];
    for (const g of this.gates.values()) {
      const inUse = g.holders.reduce((sum, h) => sum + h.n, 0);
      const names = (list) => list.map((x) => x.worker).join(", ") || "none";
      if (this.lesson.layout === "buffer") parts.push(`${g.label}: ${g.level} of ${g.capacity} slots full; waiting: ${names(g.waiting)}`);
      else if (this.lesson.layout === "bucket") parts.push(`${g.level} of ${g.capacity} tokens; waiting: ${names(g.waiting)}`);
      else if (g.id !== "resource") parts.push(`${g.label}: ${inUse} of ${g.capacity} in use by ${names(g.holders)}; waiting: ${names(g.waiting)}`);
    }
    return parts.join(". ");
  }
}
