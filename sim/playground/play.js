
// The playground: the plan, what the simulator says of it, and the chapters.

const plan = byId('plan'), strip = byId('strip');
const sides = [byId('left'), byId('right')];
const locks = {
  plain: 'textbook Redlock', mistaken: 'Redlock with the mistake', redquorum: 'redquorum', 'no guard': 'redquorum, no restart guard',
  'no drift': 'redquorum, no drift allowance', 'no renewal': 'redquorum, no renewal', 'no fencing': 'redquorum, no fencing',
};

// The simulator runs in a worker, so that the page never waits for it.
let worker, number = 0;
const asked = new Map(); // by number
const ask = (what, ...args) => new Promise(answer => {
  asked.set(++number, answer);
  worker.postMessage({ number, what, args });
});

// simulator is called by the second script, with Go's support for browsers and the program.
async function simulator(support, packed) {
  const inside = () => {
    onmessage = async e => {
      const { number, what, args, program } = e.data;
      if (!program) {
        postMessage({ number, answer: self[what](...args) });
        return;
      }
      const go = new Go();
      const { instance } = await WebAssembly.instantiate(await new Response(program.pipeThrough(new DecompressionStream('gzip'))).arrayBuffer(), go.importObject);
      go.run(instance);
      postMessage({ number: 0 });
    };
  };
  const started = new Promise(done => asked.set(0, done));
  worker = new Worker(URL.createObjectURL(new Blob([support, `;(${inside})();`], { type: 'text/javascript' })));
  worker.onmessage = e => {
    asked.get(e.data.number)(e.data.answer && JSON.parse(e.data.answer));
    asked.delete(e.data.number);
  };
  const program = new Blob([Uint8Array.from(atob(packed), c => c.charCodeAt(0))]).stream();
  worker.postMessage({ program }, [program]);
  await started;
  byId('find').disabled = false;
  say('Change the plan, and see.');
  if (shownPlan !== asText()) changed({ move: true });
}

function say(text, wrong = false) {
  byId('status').textContent = text;
  byId('status').classList.toggle('wrong', wrong);
}

// asText is what the address has: the plan and the two locks.
const asText = () => new URLSearchParams({ left: sides[0].value, right: sides[1].value, plan: plan.value }).toString();

let shownPlan = '', running = false, again = null;

// changed runs the plan on both locks, and shows the runs. Of changes that come meanwhile it runs the latest.
async function changed(how = {}) {
  showStrip();
  showChapter();
  history.replaceState(null, '', '#' + asText());
  if (!worker || asked.has(0)) return;
  if (running) {
    again = { ...again, ...how };
    return;
  }
  running = true;
  const began = performance.now(), text = plan.value, clients = sides.map(s => s.value);
  const runs = await Promise.all(clients.map(c => ask('run', text, c)));
  running = false;
  const wrong = runs.find(r => r.error);
  plan.classList.toggle('wrong', !!wrong);
  if (wrong) {
    say(wrong.error, true);
  } else {
    shownPlan = asText();
    display(runs, clients, how.move);
    say(`Two runs and their verdicts took ${Math.ceil(performance.now() - began)} ms.`);
  }
  if (again) {
    const next = again;
    again = null;
    changed(next);
  }
}

// display shows two runs. If the view is to move, it shows the violation, or else that each step gets its lock.
function display(runs, clients, move) {
  runs.forEach((run, i) => { run.lock = locks[clients[i]]; });
  if (move) shared.time = 0;
  show(runs);
  if (!move) {
    shared.seek(shared.time);
    return;
  }
  const broken = (runs[0].violations || []).map(v => v.at);
  const granted = r => r.entries.filter(e => e.kind === 'result' && e.text.endsWith(': granted')).map(e => e.at);
  const to = Math.max(1e6, ...(broken.length ? broken : [...runs.flatMap(granted), ...events().map(e => e.at)]));
  shared.look(-to * .01, to * 1.18);
  shared.seek(broken.length ? Math.min(...broken) : to * 1.1);
}

// The chapters.
function load(text, left, right) {
  plan.value = text;
  sides[0].value = left;
  sides[1].value = right;
  plan.scrollTop = 0;
}
function choose(i) {
  const c = data.chapters[i];
  load(c.plan, c.left, 'redquorum');
  changed({ move: true });
}
const chapterOf = () => data.chapters.findIndex(c => c.plan === plan.value && c.left === sides[0].value);
function showChapter() {
  const i = chapterOf();
  [...byId('chapters').children].forEach((li, n) => li.firstChild.setAttribute('aria-current', n === i));
  if (i < 0) return; // the text of the chapter stays, while its plan is changed
  const c = data.chapters[i];
  tell(c.title, c.what, c.protects);
}
function tell(title, what, protects) {
  byId('chapter-title').textContent = title;
  byId('chapter-what').textContent = what;
  byId('chapter-protects').textContent = protects;
  byId('chapter-protects').parentElement.hidden = !protects;
}

// The timeline of the plan. A time is 1.5s, 40ms or 200us.
const scales = { h: 3.6e12, m: 6e10, s: 1e9, ms: 1e6, us: 1e3, µs: 1e3, ns: 1 };
const parseTime = text => [...text.matchAll(/([\d.]+)([a-zµ]+)/g)].reduce((t, [, n, unit]) => t + n * (scales[unit] || 0), 0);
const formatTime = t => t >= 1e9 ? +(t / 1e9).toFixed(6) + 's' : t >= 1e6 || t === 0 ? +(t / 1e6).toFixed(3) + 'ms' : Math.round(t / 1e3) + 'us';
const isStep = what => /^(lock|try|downgrade|check|write|extend|unlock|cancel|detach|resume|break|inspect|close) /.test(what);

function events() {
  return plan.value.split('\n').flatMap((line, i) => {
    const m = /^\s*at\s+(\S+)\s+([^#]*?)(?:\s+for\s+([^#\s]+))?\s*(?:#.*)?$/.exec(line);
    return m ? [{ line: i, at: parseTime(m[1]), what: m[2], for: m[3] ? parseTime(m[3]) : 0, timed: !!m[3] }] : [];
  });
}

// rewrite gives an event other times, in the text of the plan.
function rewrite(e, at, lasts) {
  const lines = plan.value.split('\n');
  lines[e.line] = lines[e.line].replace(/^(\s*at\s+)\S+/, '$1' + formatTime(Math.max(0, at)));
  if (e.timed) lines[e.line] = lines[e.line].replace(/(\sfor\s+)[^#\s]+/, '$1' + formatTime(Math.max(1e3, lasts)));
  plan.value = lines.join('\n');
  changed();
}

const rowHeight = 22;
function showStrip() {
  const list = events(), { from, to } = shared.view, width = strip.clientWidth || 800, scale = width / (to - from);
  while (strip.children.length > list.length) strip.lastChild.remove();
  while (strip.children.length < list.length) strip.append(dragged(strip.children.length));
  strip.hidden = list.length === 0;
  const ends = [];
  list.forEach((e, i) => {
    const button = strip.children[i], left = (e.at - from) * scale, long = e.for * scale;
    button.textContent = e.what;
    button.className = isStep(e.what) ? 'step' : '';
    button.title = button.ariaLabel = `${e.what} at ${formatTime(e.at)}${e.timed ? ' for ' + formatTime(e.for) : ''}: drag it, or move it with the arrow keys` + (e.timed ? '; with shift they change how long it lasts' : '');
    // Where its text has no room after its time, it stands before it.
    const label = Math.ceil(6.6 * e.what.length + 16), before = left + label > width - 2;
    const begins = before ? left - label : left, wide = before ? label : Math.max(label, Math.min(long, width - 2 - left));
    let row = ends.findIndex(end => end <= begins);
    if (row < 0) row = ends.length < 7 ? ends.length : ends.indexOf(Math.min(...ends));
    ends[row] = begins + wide + 4;
    button.classList.toggle('before', before);
    Object.assign(button.style, { left: begins + 'px', top: row * rowHeight + 2 + 'px', width: (!before && long > 12 ? Math.min(long, width - 2 - left) : label) + 'px' });
    button.hidden = e.at > to || begins + wide < 0;
  });
  strip.style.height = ends.length * rowHeight + 3 + 'px';
}
shared.looked = showStrip;

function dragged(i) {
  const button = make('button', { type: 'button' });
  button.dataset.drag = '';
  let drag = null;
  const round = t => { const grain = 10 ** Math.max(3, Math.floor(Math.log10((shared.view.to - shared.view.from) / 300))); return Math.round(t / grain) * grain; };
  button.onpointerdown = event => {
    const e = events()[i];
    drag = { e, x: event.clientX, scale: strip.clientWidth / (shared.view.to - shared.view.from), end: e.timed && event.offsetX > button.clientWidth - 8 };
    button.setPointerCapture(event.pointerId);
  };
  button.onpointermove = event => {
    if (!drag) return;
    const dt = (event.clientX - drag.x) / drag.scale;
    if (drag.end) rewrite(drag.e, drag.e.at, round(drag.e.for + dt)); else rewrite(drag.e, round(drag.e.at + dt), drag.e.for);
  };
  button.onpointerup = button.onpointercancel = () => { drag = null; };
  button.onkeydown = event => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key], e = events()[i];
    if (!way) return;
    event.preventDefault();
    const dt = way * Math.max(1e3, round((shared.view.to - shared.view.from) / 100));
    if (event.shiftKey) rewrite(e, e.at, e.for + dt); else rewrite(e, e.at + dt, e.for);
  };
  return button;
}

// Finding a seed that breaks the left lock.
let finding = false;
byId('find').onclick = async () => {
  if (finding) {
    finding = false;
    return;
  }
  finding = true;
  byId('find').textContent = 'Stop';
  const text = plan.value, left = sides[0].value, few = 4;
  let found = {}, seed = Math.floor(Math.random() * 1e6);
  for (let tried = 0; finding && !found.plan && !found.error; tried += few, seed += few) {
    say(`Random faults: ${tried} seeds tried …`);
    found = await ask('find', text, left, seed, few);
  }
  if (finding && found.plan) {
    say(`Seed ${found.seed} breaks it. Now a smaller plan that does the same is looked for …`);
    const small = await ask('shrink', found.plan, left, 6000);
    if (!small.error) load(small.plan, left, sides[1].value);
    tell(`Seed ${found.seed}`, 'Faults were drawn at random until two clients held one lock on the left. Then all was left out that it does not need.', '');
    await changed({ move: true });
    say('This is the smallest plan that was found for the seed.');
  } else {
    say(found.error || 'Stopped.', !!found.error);
  }
  finding = false;
  byId('find').textContent = 'Find me a seed that breaks the left one';
};

byId('share').onclick = async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    say('The address is copied. It has the plan and the two locks.');
  } catch {
    say('The address of this page has the plan and the two locks: copy it.');
  }
};

// fromAddress loads what the address has, and reports whether there was something.
function fromAddress() {
  const shared = new URLSearchParams(location.hash.slice(1));
  if (!shared.has('plan')) return false;
  const known = (lock, other) => lock in locks ? lock : other;
  tell('A plan of your own', 'It came with the address.', '');
  load(shared.get('plan'), known(shared.get('left'), 'plain'), known(shared.get('right'), 'redquorum'));
  return true;
}

for (const side of sides) {
  side.append(...Object.entries(locks).map(([value, text]) => make('option', { value }, text)));
  side.onchange = () => changed();
}
byId('chapters').append(...data.chapters.map((c, i) => make('li', {}, make('button', { type: 'button', onclick: () => choose(i) }, `${i + 1}. ${c.title}`))));
plan.oninput = () => changed();
addEventListener('hashchange', () => { if (fromAddress()) changed({ move: true }); });
addEventListener('resize', showStrip);
if (!fromAddress()) {
  load(data.chapters[0].plan, data.chapters[0].left, 'redquorum');
  shownPlan = asText(); // its runs are in the page
  display(data.runs, sides.map(s => s.value), true);
}
changed();
