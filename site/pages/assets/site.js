// Theme, menu, contents, tables and copy buttons. Pages can be read without this script.
(() => {
  'use strict';
  document.body.classList.add('scripted');

  document.getElementById('theme').addEventListener('click', () => {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === 'dark'
      : matchMedia('(prefers-color-scheme: dark)').matches;
    const next = dark ? 'light' : 'dark';
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem('theme', next); } catch { /* private window */ }
  });

  const menu = document.getElementById('menu'), navigation = document.getElementById('navigation');
  const toggle = open => {
    navigation.classList.toggle('open', open);
    document.body.classList.toggle('covered', open);
    menu.setAttribute('aria-expanded', open);
  };
  menu.addEventListener('click', () => toggle(!navigation.classList.contains('open')));
  document.addEventListener('keydown', event => {
    if (event.key === 'Escape' && navigation.classList.contains('open')) { toggle(false); menu.focus(); }
  });

  // The contents are open beside the text, and closed above it.
  const contents = document.querySelector('.contents details'), beside = matchMedia('(min-width: 80.01rem)');
  if (contents) {
    const follow = () => { contents.open = beside.matches; };
    follow();
    beside.addEventListener('change', follow);
    contents.addEventListener('click', event => {
      if (event.target.closest('a') && !beside.matches) contents.open = false;
    });
  }

  // What scrolls can be reached with the keyboard; what fits is no stop on the way.
  const headingOf = node => {
    let heading = 'this page';
    for (const h of document.querySelectorAll('article :is(h1, h2, h3, h4)')) {
      if (!(h.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING)) break;
      heading = h.firstChild ? h.textContent.replace(/#$/, '').trim() : heading;
    }
    return heading;
  };
  const reach = frame => {
    if (frame.scrollWidth <= frame.clientWidth) {
      for (const name of ['tabindex', 'role', 'aria-label']) frame.removeAttribute(name);
    } else if (!frame.hasAttribute('tabindex')) {
      frame.tabIndex = 0;
      frame.setAttribute('role', 'group');
      frame.setAttribute('aria-label', (frame.matches('.table') ? 'Table of ' : frame.matches('pre') ? 'Code of ' : 'Chart of ') + headingOf(frame));
    }
  };
  const resized = new ResizeObserver(changes => changes.forEach(c => reach(c.target)));
  document.querySelectorAll('.table, .code pre, .text p:has(> img)').forEach(frame => { reach(frame); resized.observe(frame); });

  // Copying works without the clipboard of the browser, too, which pages served over HTTP
  // without TLS do not have, and others may not be allowed to write.
  const write = async block => {
    try { return await navigator.clipboard.writeText(block.textContent); } catch { /* below */ }
    getSelection().selectAllChildren(block);
    document.execCommand('copy');
    getSelection().removeAllRanges();
  };
  document.querySelectorAll('.code').forEach(frame => {
    const copy = document.createElement('button');
    copy.className = 'copy';
    copy.type = 'button';
    copy.textContent = 'Copy';
    copy.addEventListener('click', async () => {
      await write(frame.querySelector('code'));
      copy.textContent = 'Copied';
      setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
    });
    frame.append(copy);
  });
  document.querySelectorAll('.text :is(h2, h3, h4)[id]').forEach(heading => {
    const link = document.createElement('a');
    link.className = 'anchor';
    link.href = '#' + heading.id;
    link.textContent = '#';
    link.setAttribute('aria-label', 'Link to ' + heading.textContent.trim());
    heading.append(link);
  });
})();
