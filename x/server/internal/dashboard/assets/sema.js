// The server renders the pages. This script keeps them live: a stream sends the parts that
// have changed, and the script updates them in place, so that focus and selection stay.
"use strict";
(() => {
  const timeout = 5000; // milliseconds without an event after which the stream is opened again
  const fresh = 3000; // milliseconds for which a page counts as current
  let stream = null, address = "", current = false, opened = 0, retry = 0, wait = 1000;
  let received = Date.now(); // when the last event arrived
  let updated = received; // when the page was last current

  const byId = id => document.getElementById(id);
  // All times on a page are in the zone of the server.
  const clock = time => new Date(time + 1000 * document.body.dataset.offset).toISOString().slice(11, 19);

  function showState(state, text) {
    const live = byId("live");
    if (!live || live.dataset.state === state && byId("live-text").textContent === text) return;
    live.dataset.state = state;
    byId("live-text").textContent = text;
  }

  function lost() {
    showState("lost", `not live since ${clock(updated)}, reconnecting`);
  }

  function close() {
    clearTimeout(retry);
    if (stream) stream.close();
    stream = null;
  }

  // Browsers limit the connections per server, so a hidden tab has none.
  function open() {
    close();
    const page = document.querySelector("[data-stream]");
    if (!page || document.hidden) return;
    address = page.dataset.stream;
    opened = Date.now();
    current = false;
    const mine = stream = new EventSource(address);
    mine.addEventListener("update", event => {
      const change = JSON.parse(event.data);
      wait = 1000;
      received = Date.now();
      apply(change);
      if (current = change.live) updated = received;
      else return lost();
      if (document.querySelector("[data-blank]")) return location.reload(); // the store responds again
      showState("live", "live");
    });
    // A slow store is read less often, but the stream is still connected.
    mine.addEventListener("alive", () => {
      received = Date.now();
      if (current && received - updated > fresh) showState("live", `live, as of ${clock(updated)}`);
    });
    mine.addEventListener("error", () => {
      if (mine !== stream) return;
      lost();
      if (mine.readyState !== EventSource.CLOSED) return; // the browser reconnects by itself
      retry = setTimeout(open, wait);
      fetch("/ui/", { method: "HEAD" }).then(reply => { if (reply.status === 401) location.reload(); }, () => {}); // the page asks for a token
      wait = Math.min(2 * wait, 15000);
    });
  }

  // The browser does not notice a connection that was cut without a reset.
  setInterval(() => {
    if (!stream || stream.readyState !== EventSource.OPEN) return;
    if (Date.now() - Math.max(received, opened) > timeout) {
      lost();
      open();
    }
  }, 1000);

  // apply updates parts first and then lists, because new children of lists are among the parts.
  function apply({ parts, lists }) {
    for (const [id, html] of Object.entries(parts)) {
      const old = byId(id);
      if (old) morph(old, parse(html));
    }
    for (const [id, order] of Object.entries(lists || {})) {
      const list = byId(id);
      if (list) arrange(list, order, parts);
    }
  }

  function parse(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  }

  function arrange(list, order, parts) {
    const wanted = new Set(order);
    for (const child of [...list.children]) if (!wanted.has(child.id)) child.remove();
    // Do not reorder a list while it is hovered or focused.
    const still = inUse(list);
    let next = list.firstElementChild;
    for (const id of order) {
      let child = byId(id);
      if (!child) {
        if (!parts[id]) continue;
        child = parse(parts[id]);
        list.insertBefore(child, next);
        if (order.length <= mostMarked) child.classList.add("new");
        if (window.htmx) htmx.process(child);
      } else if (child === next) {
        next = next.nextElementSibling;
      } else if (!still) {
        list.insertBefore(child, next);
      }
    }
    if (still) pending.set(list.id, order); else pending.delete(list.id);
  }

  // In longer lists, new rows are not marked: animating many of them takes most of a second.
  const mostMarked = 100;
  const pending = new Map();
  const inUse = list => list.matches(":hover") || list.contains(document.activeElement);
  for (const kind of ["mouseout", "focusout"]) {
    document.addEventListener(kind, () => setTimeout(() => {
      for (const [id, order] of pending) {
        const list = byId(id);
        if (!list) pending.delete(id);
        else if (!inUse(list)) arrange(list, order.filter(id => byId(id)), {});
      }
    }, 300));
  }

  // morph updates an element to equal another one, and keeps equal nodes.
  function morph(old, now) {
    const link = node => node.nodeType === Node.ELEMENT_NODE && node.getAttribute("hx-get"); // htmx has already bound the URL
    if (old.nodeName !== now.nodeName || link(old) !== link(now)) {
      old.replaceWith(now);
      if (window.htmx && now.nodeType === Node.ELEMENT_NODE) htmx.process(now);
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== now.nodeValue) old.nodeValue = now.nodeValue;
      return;
    }
    if (old.isEqualNode(now)) return;
    for (const { name } of [...old.attributes]) if (!now.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const from = [...old.childNodes], to = [...now.childNodes];
    to.forEach((child, i) => {
      if (i < from.length) return morph(from[i], child);
      old.append(child);
      if (window.htmx && child.nodeType === Node.ELEMENT_NODE) htmx.process(child);
    });
    from.slice(to.length).forEach(child => child.remove());
  }

  // A dialog asks for confirmation of an action. The result is shown above the page.
  document.addEventListener("htmx:afterSwap", event => {
    if (event.detail.target.id === "ask") {
      if (!byId("dialog").open) byId("dialog").showModal();
      const field = byId("ask").querySelector("input[autofocus]");
      if (field) field.setSelectionRange(field.value.length, field.value.length); // behind a prefix
    }
    if (event.detail.target.id === "result") {
      if (byId("dialog").open) byId("dialog").close();
      byId("result").focus();
    }
  });
  for (const kind of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(kind, () => {
      const result = byId("result");
      if (!result) return;
      byId("dialog").close();
      const message = parse('<div class="result bad" role="alert"></div>');
      message.textContent = result.dataset.lost;
      result.replaceChildren(message);
      result.focus();
    });
  }
  // copy puts a text into the clipboard. Browsers offer none to pages without TLS on other hosts.
  async function copy(button) {
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const field = document.createElement("textarea");
      field.value = text;
      button.after(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  }

  document.addEventListener("click", event => {
    const copied = event.target.closest("[data-copy]");
    if (copied) return copy(copied);
    if (event.target.closest("[data-help]")) return byId("help").showModal();
    const dialog = document.querySelector("dialog[open]");
    if (!dialog) return;
    if (event.target.closest("[data-close]") || event.target === dialog) {
      event.preventDefault();
      dialog.close();
    }
  });

  // The value and the time under the pointer are shown beside the name of the chart.
  let hovered = null;
  function unhover() {
    if (!hovered) return;
    const note = hovered.closest("figure").querySelector("[data-peak]");
    note.textContent = note.dataset.peak;
    hovered = null;
  }
  document.addEventListener("pointermove", event => {
    const chart = event.target.closest && event.target.closest("svg.chart, svg.heat");
    if (chart !== hovered) unhover();
    if (!chart) return;
    hovered = chart;
    const box = chart.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const time = Number(chart.dataset.from) + share * (chart.dataset.to - chart.dataset.from);
    const down = Math.min(.999, Math.max(0, (event.clientY - box.top) / box.height));
    const value = chart.matches(".heat") ? cellAt(chart, share, down) : chart.querySelector("[data-values]") ? bandsAt(chart, share) : pointAt(chart, share);
    chart.closest("figure").querySelector("[data-peak]").textContent = `${clock(time)}: ${value || "no sample"}`;
  });

  // pointAt returns the value of a curve.
  function pointAt(chart, share) {
    let value = "";
    for (const point of chart.dataset.points.split(";")) {
      const bin = point.split(":", 1)[0];
      if (bin === "" || Number(bin) > share * 180) break;
      value = point.slice(bin.length + 1);
    }
    return value;
  }

  // cellAt returns the number of waits in a cell of a heat map, and their length.
  function cellAt(chart, share, down) {
    const labels = chart.closest(".frame").querySelectorAll(".classes span");
    const row = Math.floor(down * labels.length), columns = Number(chart.dataset.columns);
    const at = `${Math.min(columns - 1, Math.floor(share * columns))}.${row}.`;
    const cell = chart.dataset.cells.split(";").find(cell => cell.startsWith(at));
    return `${cell ? cell.slice(at.length) : 0} × ${labels[row].textContent}`;
  }

  // bandsAt returns the permits of each group.
  function bandsAt(chart, share) {
    return [...chart.querySelectorAll("[data-values]")].map(band => {
      const values = band.dataset.values.split(",");
      const value = values[Math.min(values.length - 1, Math.floor(share * values.length))];
      return value > 0 ? `${band.dataset.name} ${value}` : "";
    }).filter(Boolean).join(", ") || "0";
  }

  // step moves the focus to the next or the previous row.
  function step(by) {
    const links = [...document.querySelectorAll("#rows .name a, .walk tbody a:first-of-type")];
    if (links.length === 0) return;
    const at = links.findIndex(link => link.closest("tr").contains(document.activeElement));
    const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by))];
    next.focus({ preventScroll: true });
    next.closest("tr").scrollIntoView({ block: "nearest" });
  }

  const keys = {
    j: () => step(1),
    k: () => step(-1),
    g: () => location.assign("/ui/"),
    "/": () => byId("filter") && byId("filter").focus(),
    "?": () => byId("help").showModal(),
  };
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && event.target.id === "filter") return event.target.blur();
    if (event.target.closest("input, textarea, select, dialog[open]") || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });

  document.addEventListener("htmx:afterSettle", () => {
    const page = document.querySelector("[data-stream]");
    if (page && page.dataset.stream !== address) open();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      showState("rests", `as of ${clock(updated)}`);
    } else {
      open();
    }
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", event => { if (event.persisted) open(); });

  open();
})();
