// Pages are drawn by the server. This keeps them live: a stream says which parts have
// changed, and they are changed in place, so that nobody loses a focus or a selection.
"use strict";
(() => {
  const silence = 5000; // after which a stream that says nothing is taken for dead
  const fresh = 3000; // what is older is not shown as if it were of now
  let stream = null, address = "", answered = false, opened = 0, retry = 0, wait = 1000;
  let heard = Date.now(); // when the stream last said anything
  let seen = heard; // when the page was last as it is now

  const byId = id => document.getElementById(id);
  const clock = time => new Date(time).toTimeString().slice(0, 8);

  function tell(state, text) {
    const live = byId("live");
    if (!live || live.dataset.state === state && byId("live-text").textContent === text) return;
    live.dataset.state = state;
    byId("live-text").textContent = text;
  }

  function lost() {
    tell("lost", `not live since ${clock(seen)}, trying again`);
  }

  function close() {
    clearTimeout(retry);
    if (stream) stream.close();
    stream = null;
  }

  // A browser has few connections for one server: a tab that nobody sees needs none.
  function open() {
    close();
    const page = document.querySelector("[data-stream]");
    if (!page || document.hidden) return;
    address = page.dataset.stream;
    opened = Date.now();
    answered = false;
    const mine = stream = new EventSource(address);
    mine.addEventListener("update", event => {
      const change = JSON.parse(event.data);
      wait = 1000;
      heard = Date.now();
      apply(change);
      if (answered = change.live) seen = heard;
      else return lost();
      if (document.querySelector("[data-blank]")) return location.reload(); // now there is something to show
      tell("live", "live");
    });
    // A slow store is read less often. The stream lives all the same.
    mine.addEventListener("alive", () => {
      heard = Date.now();
      if (answered && heard - seen > fresh) tell("live", `live, as of ${clock(seen)}`);
    });
    mine.addEventListener("error", () => {
      if (mine !== stream) return;
      lost();
      if (mine.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      retry = setTimeout(open, wait);
      wait = Math.min(2 * wait, 15000);
    });
  }

  // A connection that is cut somewhere on the way does not say so.
  setInterval(() => {
    if (!stream || stream.readyState !== EventSource.OPEN) return;
    if (Date.now() - Math.max(heard, opened) > silence) {
      lost();
      open();
    }
  }, 1000);

  // apply changes parts first and then lists, whose new children are among the parts.
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
    // What somebody points at stays where it is, until they do not.
    const still = pointsAt(list);
    let next = list.firstElementChild;
    for (const id of order) {
      let child = byId(id);
      if (!child) {
        if (!parts[id]) continue;
        child = parse(parts[id]);
        list.insertBefore(child, next);
        child.classList.add("new");
        if (window.htmx) htmx.process(child);
      } else if (child === next) {
        next = next.nextElementSibling;
      } else if (!still) {
        list.insertBefore(child, next);
      }
    }
    if (still) pending.set(list.id, order); else pending.delete(list.id);
  }

  const pending = new Map();
  const pointsAt = list => list.matches(":hover") || list.contains(document.activeElement);
  for (const kind of ["mouseout", "focusout"]) {
    document.addEventListener(kind, () => setTimeout(() => {
      for (const [id, order] of pending) {
        const list = byId(id);
        if (!list) pending.delete(id);
        else if (!pointsAt(list)) arrange(list, order.filter(id => byId(id)), {});
      }
    }, 300));
  }

  // morph makes an element like another one, and keeps what is alike.
  function morph(old, now) {
    const link = node => node.nodeType === Node.ELEMENT_NODE && node.getAttribute("hx-get"); // htmx has noted where it leads
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

  // What is about to be done is asked in a dialog, and what became of it is said above.
  document.addEventListener("htmx:afterSwap", event => {
    if (event.detail.target.id === "ask" && !byId("dialog").open) byId("dialog").showModal();
    if (event.detail.target.id === "result") {
      byId("dialog").close();
      byId("result").focus();
    }
  });
  for (const kind of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(kind, () => {
      const result = byId("result");
      if (!result) return;
      byId("dialog").close();
      const said = parse('<div class="result bad" role="alert"></div>');
      said.textContent = result.dataset.lost;
      result.replaceChildren(said);
      result.focus();
    });
  }
  document.addEventListener("click", event => {
    const dialog = byId("dialog");
    if (!dialog || !dialog.open) return;
    if (event.target.closest("[data-close]") || event.target === dialog) {
      event.preventDefault();
      dialog.close();
    }
  });

  document.addEventListener("keydown", event => {
    const filter = byId("filter");
    if (!filter || event.target.closest("input, textarea, dialog")) return;
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      filter.focus();
    }
  });

  document.addEventListener("htmx:afterSettle", () => {
    const page = document.querySelector("[data-stream]");
    if (page && page.dataset.stream !== address) open();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      tell("rests", `as of ${clock(seen)}`);
    } else {
      open();
    }
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", event => { if (event.persisted) open(); });

  open();
})();
