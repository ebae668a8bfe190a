// What a page of the book does besides being read. Each part can be missing.

// Search: its texts are as large as the book, so they are loaded when somebody goes to the field.
const searchForm = document.querySelector('.top form');
const loadSearch = () => {
  if (document.getElementById('search-texts')) return;
  const script = document.createElement('script');
  script.id = 'search-texts';
  script.src = 'search.js';
  script.onload = () => { if (searchForm.dataset.sent) searchForm.requestSubmit(); };
  document.head.append(script);
};
searchForm.hidden = false;
searchForm.addEventListener('focusin', loadSearch);
searchForm.addEventListener('submit', event => {
  event.preventDefault();
  searchForm.dataset.sent = 'true';
});
if (location.search.includes('search=')) loadSearch();

// Copying: navigator.clipboard needs a permission and a secure address; a selection needs neither.
function copy(text) {
  const field = document.createElement('textarea');
  field.value = text;
  field.style.position = 'fixed';
  field.style.opacity = 0;
  document.body.append(field);
  field.select();
  const done = document.execCommand('copy');
  field.remove();
  return done;
}
for (const code of document.querySelectorAll('.highlight, .commands li')) {
  const button = document.createElement('button');
  const text = code.querySelector('pre, code').textContent;
  button.type = 'button';
  button.className = 'copy';
  button.textContent = 'Copy';
  button.addEventListener('click', () => {
    button.textContent = copy(text) ? 'Copied' : 'Select and copy by hand';
    button.focus();
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  });
  code.classList.add('copies');
  code.append(button);
}

// What scrolls is what a keyboard must reach.
function reachScrollers() {
  for (const one of document.querySelectorAll('main pre, .jp-OutputArea-output, main table'))
    if (one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== 'visible')
      one.tabIndex = 0;
}
addEventListener('load', reachScrollers);
addEventListener('resize', reachScrollers);

// Paper: hints and the like are printed open; an answer that the reader left folded is not printed.
let unfolded = [];
addEventListener('beforeprint', () => {
  unfolded = [...document.querySelectorAll('main details:not([open]):not(.answer)')];
  for (const one of unfolded) one.open = true;
});
addEventListener('afterprint', () => { for (const one of unfolded) one.open = false; });

// The recorded run of the first page.
const run = document.querySelector('.run');
if (run) {
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  const scenes = [...run.querySelectorAll('.scene')];
  const button = run.querySelector('button');
  const slider = run.querySelector('input');
  const end = Number(slider.max);
  let begin = 0;
  for (const scene of scenes) {
    scene.begin = begin;
    scene.end = begin += Number(scene.dataset.seconds);
  }
  let last = null;  // the time of the frame before, while it plays

  function show(moment) {
    const now = scenes.find(scene => moment < scene.end) ?? scenes.at(-1);
    for (const scene of scenes) scene.classList.toggle('now', scene === now);
    for (const one of now.querySelectorAll('[data-at]'))
      one.classList.toggle('later', moment - now.begin < one.dataset.at);
    for (const bar of now.querySelectorAll('[data-from]')) {
      const share = (moment - now.begin - bar.dataset.from) / (bar.dataset.to - bar.dataset.from);
      bar.style.transform = `scaleX(${Math.min(Math.max(share, 0), 1)})`;
    }
    slider.value = moment;
    slider.setAttribute('aria-valuetext',
      `${now.dataset.name}, second ${(moment - now.begin).toFixed(1)}`);
  }
  function stop() {
    last = null;
    button.textContent = still ? 'Next' : 'Play';
  }
  function frame(time) {
    if (last === null) return;
    const moment = Math.min(Number(run.moment) + (time - last) / 1000, end);
    run.moment = moment;
    last = time;
    show(moment);
    if (moment < end) requestAnimationFrame(frame);
    else stop();
  }
  function play() {
    if (run.moment >= end) run.moment = 0;
    button.textContent = 'Pause';
    last = performance.now();
    requestAnimationFrame(frame);
  }
  button.addEventListener('click', () => {
    if (still) {  // without motion: from the end of one scene to that of the other
      run.moment = run.moment < scenes[0].end ? end : scenes[0].end - 0.01;
      show(run.moment);
    } else if (last === null) play();
    else stop();
  });
  slider.addEventListener('input', () => {
    stop();
    run.moment = Number(slider.value);
    show(run.moment);
  });
  run.classList.add('playing');
  run.querySelector('.controls').hidden = false;
  run.moment = still ? scenes[0].end - 0.01 : 0;
  stop();
  show(run.moment);
  if (!still) {
    const seen = new IntersectionObserver(entries => {
      if (entries.some(entry => entry.isIntersecting)) {
        seen.disconnect();
        play();
      }
    }, {threshold: 0.6});
    seen.observe(run);
  }
}
