// Search over the index in search.json. Pages can be read without this script.
(() => {
  'use strict';
  const root = document.body.dataset.root;
  const query = document.getElementById('query'), found = document.getElementById('found'), count = document.getElementById('count');

  let entries = null;
  const load = async () => {
    entries ??= fetch(root + 'search.json').then(reply => reply.json()).then(all => all.map(e => ({
      ...e, inTitle: e.page.toLowerCase(), inHeading: (e.heading || '').toLowerCase(), inText: e.text.toLowerCase(), inCode: (e.code || '').toLowerCase(),
    })));
    return entries;
  };

  const letter = /[\p{L}\p{N}_]/u;
  // match returns how well a text contains a word: 3 as a whole word, 2 as the beginning of one, 1 inside of one.
  const match = (text, word) => {
    let best = 0;
    for (let at = text.indexOf(word); at >= 0 && best < 3; at = text.indexOf(word, at + 1)) {
      const starts = at === 0 || !letter.test(text[at - 1]), end = text[at + word.length];
      best = Math.max(best, starts ? (end === undefined || !letter.test(end) ? 3 : 2) : 1);
    }
    return best;
  };

  // score ranks an entry. Each word must occur. Headings count more than text, text more than code, rare
  // words more than common ones, and pages about the use of Sema more than those about its inside.
  const score = (e, words, weights, phrase) => {
    let sum = 0;
    for (const [i, w] of words.entries()) {
      const here = 5 * match(e.inHeading, w) + (e.heading ? 1 : 6) * match(e.inTitle, w) + match(e.inText, w) + 0.5 * match(e.inCode, w);
      if (!here) return 0;
      sum += here * weights[i];
    }
    const name = e.inHeading || e.inTitle;
    if (e.kind === 'symbol') {
      // A symbol is found by its name, with or without those of its package and type.
      const parts = e.inHeading.split('.');
      const exact = parts.some((_, i) => parts.slice(i).join('.') === phrase);
      return exact ? sum * 3 / (1 + 0.1 * parts.length) : sum * 0.3;
    }
    if (name === phrase) sum *= 2;
    else if (match(name, phrase) >= 2) sum *= 1.5;
    else if (words.length > 1 && match(e.inText, phrase) >= 2) sum *= 1.3;
    return e.kind === 'inside' ? sum * 0.5 : sum;
  };

  // excerpt returns the part of the text with the most of the words, with these marked.
  const length = 170;
  const excerpt = (e, words) => {
    const text = words.some(w => e.inText.includes(w)) || !words.some(w => e.inCode.includes(w)) ? e.text : e.code;
    const lower = text.toLowerCase();
    const hits = [];
    for (const w of words) for (let at = lower.indexOf(w); at >= 0; at = lower.indexOf(w, at + 1)) hits.push([at, w]);
    hits.sort((a, b) => a[0] - b[0]);
    let from = 0, most = 0;
    for (const [at] of hits) {
      const near = new Set(hits.filter(([i, w]) => i >= at && i + w.length <= at + length - 40).map(([, w]) => w)).size;
      if (near > most) { most = near; from = at; }
    }
    // It begins with the sentence, if that is near, and otherwise with a word.
    const sentence = Math.max(text.lastIndexOf('. ', from), text.lastIndexOf('? ', from), text.lastIndexOf(' · ', from));
    const named = words.every(w => (e.inHeading || e.inTitle).includes(w)); // the heading contains all that is searched
    if (named || from < 60) from = 0;
    else if (from - sentence < 70 && sentence >= 0) from = sentence + 2;
    else from = text.indexOf(' ', from - 50) + 1;
    let to = Math.min(text.length, from + length);
    if (to < text.length) to = Math.max(text.lastIndexOf(' ', to), from + length / 2);

    const line = document.createElement('span');
    if (from > 0) line.append('… ');
    let at = from;
    for (const [i, w] of hits) {
      if (i < at || i + w.length > to) continue;
      const mark = document.createElement('mark');
      mark.textContent = text.slice(i, i + w.length);
      line.append(text.slice(at, i), mark);
      at = i + w.length;
    }
    line.append(text.slice(at, to) + (to < text.length ? ' …' : ''));
    return line;
  };

  const search = async () => {
    const phrase = query.value.toLowerCase().trim().replace(/\(.*\)?$/, '').replace(/\s+/g, ' ');
    const words = phrase.split(' ').filter(Boolean);
    if (!words.length) { found.hidden = true; count.textContent = ''; return; }
    const all = await load();
    const weights = words.map(w => Math.log(1 + all.length / (1 + all.filter(e => e.inText.includes(w) || e.inHeading.includes(w)).length)));
    const ranked = all.map(e => [score(e, words, weights, phrase), e]).filter(([s]) => s > 0).sort((a, b) => b[0] - a[0]);
    // At most three results of a page, so that one page does not fill the list.
    const perPage = new Map();
    const hits = ranked.filter(([, e]) => {
      perPage.set(e.page, (perPage.get(e.page) || 0) + 1);
      return perPage.get(e.page) <= 3;
    }).slice(0, 12);
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
    count.textContent = hits.length === 1 ? '1 result' : hits.length + ' results';
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
    } else if (event.key === 'Escape' && !found.hidden) {
      found.hidden = true;
      query.focus();
    } else if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && !found.hidden && links.length) {
      event.preventDefault();
      const at = links.indexOf(document.activeElement);
      if (event.key === 'ArrowUp' && at <= 0) query.focus();
      else links[Math.min(links.length - 1, event.key === 'ArrowDown' ? at + 1 : at - 1)].focus();
    } else if (event.key === 'Enter' && document.activeElement === query && links.length) {
      links[0].click();
    }
  });
  document.addEventListener('click', event => { if (!event.target.closest('.search')) found.hidden = true; });
})();
