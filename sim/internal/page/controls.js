// The page: the viewers of its runs have one time, one zoom and one keyboard.

const byId = id => document.getElementById(id);
const make = (tag, properties, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
const ms = t => (Math.floor(t / 1e3) / 1e3).toFixed(3);

const data = JSON.parse(byId('data').textContent);
const slider = byId('slider');
let viewers = [];

// What the viewers share.
const shared = {
  view: { from: 0, to: 1 },  // the time in view
  whole: { from: 0, to: 1 }, // all of the runs
  time: 0,                   // what came later is pale
  end: 1,

  // look shows a span of time.
  look(from, to) {
    const span = Math.min(Math.max(to - from, 20e3), shared.end * 1.3);
    from = Math.max(-span * .1, Math.min(from, shared.end - span * .75));
    Object.assign(shared.view, { from, to: from + span });
    showTime();
    for (const v of viewers) v.redraw();
    if (shared.looked) shared.looked();
  },
  fit: () => shared.look(shared.whole.from, shared.whole.to),
  zoom: (factor, around) => shared.look(around - (around - shared.view.from) * factor, around + (shared.view.to - around) * factor),
  move(share) {
    const span = shared.view.to - shared.view.from;
    shared.look(shared.view.from + span * share, shared.view.to + span * share);
  },
  seek(t) {
    const { from, to } = shared.view;
    shared.time = Math.max(0, Math.min(t, shared.end));
    if (t < from || t > to) shared.look(t - (to - from) / 2, t + (to - from) / 2);
    for (const v of viewers) v.seek(shared.time);
    showTime();
  },
};

function showTime() {
  const { from, to } = shared.view;
  slider.value = (shared.time - from) / (to - from) * slider.max;
  byId('time').textContent = ms(shared.time) + ' ms';
  slider.setAttribute('aria-valuetext', `${ms(shared.time)} ms. ` +
    viewers.map(v => (viewers.length > 1 ? v.run.lock + ': ' : '') + v.state()).join('. '));
}

// show replaces the viewers by those of these runs. They keep the time and the zoom.
function show(runs) {
  const last = Math.max(1, ...runs.map(r => r.entries.length ? r.entries.at(-1).at : 0));
  shared.end = Math.max(last, ...runs.map(r => r.end));
  // There is room after a violation, which is the last event of most runs that have one.
  Object.assign(shared.whole, { from: -last * .01, to: last * (runs.some(r => r.violations) ? 1.15 : 1.02) });
  const roots = runs.map(() => byId('side').content.firstElementChild.cloneNode(true));
  byId('sides').replaceChildren(...roots);
  viewers = runs.map((run, i) => viewer(roots[i], run, shared));
  for (const v of viewers) v.begin();
  const heads = roots.map(root => root.querySelector('.head')), tallest = Math.max(...heads.map(h => h.offsetHeight));
  if (innerWidth > 900) for (const h of heads) h.style.minHeight = tallest + 'px'; // the pictures begin at one height
  document.querySelector('[data-do=violation]').disabled = !viewers.some(v => v.violated);
}

// start shows the runs of the page, and goes to what went wrong, or to the end.
function start() {
  show(data.runs);
  applyTheme();
  shared.fit();
  actions.last();
  actions.violation();
  viewers[0].canvas.focus({ preventScroll: true });
}

// step goes to the nearest event of any run, or the nearest notable one.
function step(way, of) {
  const near = viewers.map(v => v.near(of, way)).filter(e => e.at !== undefined);
  if (near.length) near.reduce((a, b) => (b.at - a.at) * way < 0 ? b : a).choose();
}

let playing = 0;
function play() {
  const button = document.querySelector('[data-do=play]');
  cancelAnimationFrame(playing);
  playing = playing ? 0 : requestAnimationFrame(frame);
  button.textContent = playing ? '❚❚' : '▶';
  const { from, to } = shared.view, began = performance.now();
  const start = shared.time >= Math.min(to, shared.end) || shared.time < from ? Math.max(0, from) : shared.time;
  function frame(now) {
    shared.seek(Math.min(start + (to - from) * (now - began) / 8e3, to, shared.end)); // all that is in view takes eight seconds
    if (shared.time >= Math.min(to, shared.end)) play(); else playing = requestAnimationFrame(frame);
  }
}

function around() {
  const { from, to } = shared.view;
  return shared.time >= from && shared.time <= to ? shared.time : (from + to) / 2;
}

const actions = {
  in: () => shared.zoom(.6, around()), out: () => shared.zoom(1 / .6, around()), back: () => shared.move(-.25), on: () => shared.move(.25),
  fit: shared.fit, play, violation: () => viewers.find(v => v.violated)?.goToViolation(),
  previous: () => step(-1, 'event'), next: () => step(1, 'event'),
  previousNotable: () => step(-1, 'notable'), nextNotable: () => step(1, 'notable'),
  first: () => shared.seek(0), last: () => shared.seek(shared.whole.to),
};
const keys = {
  '+': 'in', '=': 'in', '-': 'out', h: 'back', l: 'on', 0: 'fit', v: 'violation', ' ': 'play', ArrowLeft: 'previous', ArrowRight: 'next',
  k: 'previousNotable', j: 'nextNotable', ArrowUp: 'previousNotable', ArrowDown: 'nextNotable', Home: 'first', End: 'last',
};
const scrolling = ['ArrowUp', 'ArrowDown', 'Home', 'End', ' ']; // these are the page's, unless a picture or the slider has the focus

document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('select, pre, summary, textarea, [data-drag]')) return;
  const action = keys[event.key];
  if (!action || scrolling.includes(event.key) && !event.target.closest('canvas, #slider')) return;
  event.preventDefault();
  actions[action]();
});
for (const button of document.querySelectorAll('[data-do]')) button.onclick = () => actions[button.dataset.do]();
slider.oninput = () => shared.seek(shared.view.from + slider.value / slider.max * (shared.view.to - shared.view.from));
addEventListener('resize', () => { for (const v of viewers) v.resize(); });

// Themes: the system's, unless the button says another one.
const systemDark = matchMedia('(prefers-color-scheme: dark)');
let ownTheme = '';
function applyTheme() {
  const theme = ownTheme || (systemDark.matches ? 'dark' : 'light');
  document.documentElement.dataset.theme = theme;
  byId('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
  for (const v of viewers) v.colour();
}
systemDark.addEventListener('change', applyTheme);
byId('theme').onclick = () => {
  ownTheme = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
  applyTheme();
};
applyTheme();
