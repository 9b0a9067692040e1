// Runs the Go program. Its only clock is the one below, which the page stops, slows down and
// steps: so the real packages wait, expire and refill at the speed that the user has chosen.
"use strict";

let now = 0; // milliseconds of the program's clock
const timers = new Map(); // by ID: {at, fire}
let lastTimer = 0;

// Each reading takes a microsecond, so that loops which wait for the clock end.
Object.defineProperty(self, "performance", { value: { now: () => (now += 0.001) } });
const epoch = Date.UTC(2026, 0, 1);
self.Date = class extends Date {
	constructor(...args) { args.length ? super(...args) : super(epoch + now); }
	static now() { return epoch + now; }
};
const realSetInterval = self.setInterval;
self.setTimeout = (fire, after) => { timers.set(++lastTimer, { at: now + Math.max(0, after || 0), fire }); return lastTimer; };
self.clearTimeout = (id) => { timers.delete(id); };

importScripts("wasm_exec.js");

// next returns the timer that is due first.
function next() {
	let first = null, firstID = 0;
	for (const [id, timer] of timers) {
		if (!first || timer.at < first.at) [first, firstID] = [timer, id];
	}
	return first && { id: firstID, ...first };
}

// advance moves the clock to an instant, and fires what is due until then, in order.
function advance(to) {
	for (let i = 0; i < 10000; i++) {
		const timer = next();
		if (!timer || timer.at > to) break;
		now = Math.max(now, timer.at);
		timers.delete(timer.id);
		timer.fire();
	}
	now = Math.max(now, to);
}

let speed = 1, running = false, started = 0, events = [], captions = 0;

self.semaReady = (lessons) => postMessage({ ready: JSON.parse(lessons) });
self.semaStarted = () => { started = now; events = [{ kind: "started" }]; };
self.semaEmit = (text) => {
	const event = JSON.parse(text);
	if (event.caption) captions++;
	events.push(event);
};

function flush() {
	postMessage({ events, at: now - started });
	events = [];
}

// tick advances the clock by the real time since the last tick.
const tickEvery = 16;
realSetInterval(() => {
	if (!running) return;
	advance(now + tickEvery * speed);
	flush();
}, tickEvery);

// step advances the clock to the next event with a caption, at most by ten seconds.
function step() {
	const seen = captions, limit = now + 10000;
	while (captions === seen) {
		const timer = next();
		if (!timer || timer.at > limit) break;
		advance(timer.at);
	}
	flush();
}

onmessage = ({ data }) => {
	if (data.speed !== undefined) speed = data.speed;
	if (data.running !== undefined) running = data.running;
	if (data.step) step();
	if (data.request) {
		const fault = self.sema(JSON.stringify(data.request));
		if (fault) postMessage({ fault });
		flush();
	}
};

// load returns the program. Some servers decompress the file on the way, others do not.
async function load() {
	const response = await fetch("play.wasm.gz");
	if (!response.ok) throw new Error(`play.wasm.gz: ${response.status} ${response.statusText}`);
	const bytes = await response.arrayBuffer();
	const head = new Uint8Array(bytes, 0, 2);
	if (head[0] !== 0x1f || head[1] !== 0x8b) return bytes;
	return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

(async () => {
	try {
		const go = new Go();
		const { instance } = await WebAssembly.instantiate(await load(), go.importObject);
		await go.run(instance);
		throw new Error("the program has ended");
	} catch (error) {
		postMessage({ fault: String(error.message || error) });
	}
})();
