// The theme is that of the system until the reader selects another one. This script runs before
// the page is drawn.
(() => {
  'use strict';
  try {
    const stored = localStorage.getItem('theme');
    if (stored) document.documentElement.dataset.theme = stored;
  } catch { /* private window */ }
})();
