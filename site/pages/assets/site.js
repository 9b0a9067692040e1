// Theme, menu, search and copy buttons. Pages can be read without this script.
(() => {
  'use strict';
  const root = document.body.dataset.root;
  document.body.classList.add('scripted');

  // The theme is that of the system until the reader selects another one.
  const stored = (() => { try { return localStorage.getItem('theme'); } catch { return null; } })();
  if (stored) document.documentElement.dataset.theme = stored;
  document.getElementById('theme').addEventListener('click', () => {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === 'dark'
      : matchMedia('(prefers-color-scheme: dark)').matches;
    const next = dark ? 'light' : 'dark';
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem('theme', next); } catch { /* private window */ }
  });

  const menu = document.getElementById('menu');
  menu.addEventListener('click', () => {
    const open = document.getElementById('navigation').classList.toggle('open');
    menu.setAttribute('aria-expanded', open);
  });

  document.querySelectorAll('article table').forEach(table => {
    const frame = document.createElement('div');
    frame.className = 'table';
    frame.tabIndex = 0; // scrolls on a phone
    frame.setAttribute('role', 'region');
    frame.setAttribute('aria-label', 'table');
    table.replaceWith(frame);
    frame.append(table);
  });
  document.querySelectorAll('article pre').forEach(block => {
    const frame = document.createElement('div');
    frame.className = 'code';
    block.replaceWith(frame);
    const copy = document.createElement('button');
    copy.className = 'copy';
    copy.type = 'button';
    copy.textContent = 'Copy';
    copy.addEventListener('click', async () => {
      await navigator.clipboard.writeText(block.textContent);
      copy.textContent = 'Copied';
      setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
    });
    frame.append(block, copy);
  });
  document.querySelectorAll('article :is(h2, h3, h4)[id]').forEach(heading => {
    const link = document.createElement('a');
    link.className = 'anchor';
    link.href = '#' + heading.id;
    link.textContent = '#';
    link.setAttribute('aria-label', 'Link to ' + heading.textContent.trim());
    heading.append(link);
  });

  // Search: all words must occur; headings and titles count more than text.
  const query = document.getElementById('query'), found = document.getElementById('found');
  let entries = null;
  const load = async () => {
    if (!entries) {
      entries = fetch(root + 'search.json').then(reply => reply.json()).then(all => all.map(e => ({
        ...e, inTitle: e.page.toLowerCase(), inHeading: (e.heading || '').toLowerCase(), inText: e.text.toLowerCase(),
      })));
    }
    return entries;
  };
  const score = (e, words) => {
    let sum = 0;
    for (const w of words) {
      const here = (e.inHeading.includes(w) ? 8 : 0) + (e.inTitle.includes(w) ? (e.heading ? 3 : 10) : 0) + (e.inText.includes(w) ? 1 : 0);
      if (!here) return 0;
      sum += here;
    }
    return sum;
  };
  const excerpt = (e, words) => {
    const at = Math.max(0, Math.min(...words.map(w => e.inText.indexOf(w)).filter(i => i >= 0), e.text.length) - 50);
    const line = document.createElement('span');
    let text = (at > 0 ? '… ' : '') + e.text.slice(at, at + 160) + (at + 160 < e.text.length ? ' …' : '');
    while (text) {
      const lower = text.toLowerCase();
      const next = words.map(w => [lower.indexOf(w), w.length]).filter(([i]) => i >= 0).sort((a, b) => a[0] - b[0])[0];
      if (!next) { line.append(text); break; }
      const hit = document.createElement('mark');
      hit.textContent = text.slice(next[0], next[0] + next[1]);
      line.append(text.slice(0, next[0]), hit);
      text = text.slice(next[0] + next[1]);
    }
    return line;
  };
  const search = async () => {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) { found.hidden = true; return; }
    const all = await load();
    const hits = all.map(e => [score(e, words), e]).filter(([s]) => s > 0).sort((a, b) => b[0] - a[0]).slice(0, 12);
    found.replaceChildren(...hits.map(([, e]) => {
      const link = document.createElement('a');
      link.href = root + e.address;
      const title = document.createElement('strong');
      title.textContent = e.heading ? e.page + ' › ' + e.heading : e.page;
      link.append(title, excerpt(e, words));
      return link;
    }));
    if (!hits.length) {
      const none = document.createElement('p');
      none.textContent = 'No page contains ' + words.map(w => '“' + w + '”').join(' and ') + '.';
      found.append(none);
    }
    found.hidden = false;
  };
  query.addEventListener('input', search);
  query.addEventListener('focus', load);
  document.addEventListener('keydown', event => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
    const links = [...found.querySelectorAll('a')];
    if (event.key === '/' && !typing) {
      event.preventDefault();
      query.focus();
    } else if (event.key === 'Escape') {
      found.hidden = true;
      query.blur();
    } else if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && !found.hidden && links.length) {
      event.preventDefault();
      const at = links.indexOf(document.activeElement);
      links[Math.max(0, Math.min(links.length - 1, event.key === 'ArrowDown' ? at + 1 : at - 1))].focus();
    } else if (event.key === 'Enter' && document.activeElement === query && links.length) {
      links[0].click();
    }
  });
  document.addEventListener('click', event => { if (!event.target.closest('.search')) found.hidden = true; });
})();
