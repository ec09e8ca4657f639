// The pointer, the panel, the legend and the table.

const part = name => root.querySelector('.' + name);

// choose makes an entry the current one, in all viewers, and moves it into view.
function choose(i) {
  if (entries.length === 0 || i === undefined) return;
  i = Math.max(0, Math.min(i, entries.length - 1));
  shared.seek(entries[i].at);
  current = i;
  const [lane] = lanesOf(entries[i]);
  if (lane !== undefined) reveal(lane);
  showEvent();
}

// seek makes the last entry up to a time the current one.
function seek(t) {
  current = violated && entries[violationEntry].at === t ? violationEntry : Math.max(0, firstWhere(entries, e => e.at > t) - 1);
  showEvent();
}

// reveal scrolls to a lane that is not in view.
function reveal(lane) {
  if (laneTop(lane) < lanesTop) scrollTo(scroll + laneTop(lane) - lanesTop);
  if (laneTop(lane) + heightOf(lane) > lanesBottom()) scrollTo(scroll + laneTop(lane) + heightOf(lane) - lanesBottom());
}

function details(e) {
  const list = [];
  if (e.token) list.push(['token', String(e.token)]);
  if (e.owner) list.push(['owner', e.owner]);
  if (e.message) list.push(['message', 'no. ' + e.message]);
  if (e.until && e.kind === 'fault') list.push(['until', ms(e.until) + ' ms']);
  return list;
}

function showEvent() {
  const e = entries[current];
  if (!e) return;
  part('when').textContent = `${current + 1} of ${entries.length}, at ${ms(e.at)} ms`;
  part('event').textContent = inWords(e);
  root.querySelector('dl').replaceChildren(...details(e).flatMap(([what, value]) => [make('dt', {}, what), make('dd', {}, value)]));
  part('state').replaceChildren(...stateAt(shared.time).map(s => {
    const element = make('span', { className: s.bad ? 'bad' : '' }, s.text);
    element.style.borderColor = s.bad ? colours.violation : colourOf(s.client);
    return element;
  }));
  const told = (run.story || []).findLastIndex(l => l.at <= shared.time);
  [...part('story').children].forEach((li, i) => li.setAttribute('aria-current', i === told));
  redraw();
}

// showStory tells what happened in a few lines, and what else is known of the run.
function showStory() {
  part('lock').textContent = run.lock;
  part('verdict').textContent = run.verdict;
  part('verdict').classList.add(run.verdict);
  part('words').textContent = run.words;
  part('what').replaceChildren();
  if (worst) {
    part('what').append('At ', make('b', { className: 'time' }, ms(worst.at) + ' ms'), `: ${worst.what}.`);
    if (worst.outside) part('what').append(' ', make('b', {}, 'Before that'), ` ${worst.outside}.`);
  }
  part('story').replaceChildren(...(run.story || []).map(l => {
    const bad = l.text.startsWith('VIOLATED');
    const words = bad ? `${worst.name || 'an invariant'} is broken` : l.text;
    if (l.text === '...') return make('li', {}, l.text);
    return make('li', {}, make('button', { type: 'button', className: bad ? 'violation' : '', onclick: () => bad ? goToViolation() : shared.seek(l.at) },
      make('span', { className: 'at' }, ms(l.at)), make('span', {}, words)));
  }));
  const about = [];
  if (run.scenario) about.push(make('p', {}, run.scenario.story), make('p', {}, make('b', {}, 'What protects: '), run.scenario.protects + '.'));
  if (worst && worst.means) about.push(make('p', {}, make('b', {}, `Broken: ${worst.name} (${worst.invariant}). `), `It asks: ${worst.means}.`));
  if (run.far) about.push(make('p', {}, make('b', {}, 'The name far'), ` is on ${run.far} only. A client takes it together with another name, which is on all nodes, and holds the two as one lock (LockAll).`));
  about.push(make('p', { className: 'facts' }, run.facts.join(' · ')),
    make('details', { open: root.clientWidth > 900 }, make('summary', {}, 'The plan of this run'), make('pre', { tabIndex: 0 }, run.plan)));
  part('about').replaceChildren(...about);
}

// The entries that a reader may go to from the current one.
const next = {
  event: step => current + step,
  notable: step => step > 0 ? notable.find(i => i > current) : notable.findLast(i => i < current),
};

// goToViolation shows what led to it: the grants that conflict, and the last hundred or so
// events, unless these go much further back.
function goToViolation() {
  if (!violated) return;
  const at = entries[violationEntry].at;
  const held = conflict.length ? at - conflict[0].from : 0;
  const events = at - entries[Math.max(0, violationEntry - 120)].at;
  const span = Math.max(held, held ? Math.min(events, 4 * held) : events, 2e6);
  if (span > .7 * last) shared.fit(); else shared.look(at - span * 1.1, at + span * .25);
  choose(violationEntry);
  if (conflict.length) reveal(conflict[0].lane);
}

// Under the pointer: small things before large ones.
function under(px, y) {
  let best = null, distance = 6;
  for (const hit of hits) {
    let d;
    if (hit.segment) {
      d = 1 + toSegment(px, y, hit.segment);
    } else {
      const [left, top, right, bottom] = hit.box;
      if (px < left - 2 || px > right + 2 || y < top || y > bottom) continue;
      d = hit.above ? 0 : hit.below ? 5.5 : 3;
    }
    if (d <= distance) { best = hit; distance = d; }
  }
  return best;
}

function toSegment(px, y, [x0, y0, x1, y1]) {
  const dx = x1 - x0, dy = y1 - y0;
  const share = Math.max(0, Math.min(1, ((px - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(px - x0 - share * dx, y - y0 - share * dy);
}

function describe(hit) {
  const e = entries[hit.entry];
  if (hit.bar) {
    const b = hit.bar;
    return `${whatIs(b)}, ${ms(b.from)} to ${b.until > end ? ms(b.until) + ' ms if nothing changes it' : ms(b.until) + ' ms'}` +
      (b.token ? `, token ${b.token}` : '') + (b.marks && b.marks.length ? `; extended ${b.marks.length} times` : '');
  }
  return `${ms(e.at)} ms  ${inWords(e)}`;
}

// whatIs says what a bar means.
function whatIs(b) {
  const who = b.clients.map(clientName), label = lanes[b.lane].label;
  if (b.line) return `${label} knows that for ${b.name} there ${who.length > 1 ? 'wait' : 'waits'} ${who.join(', then ')}`;
  if (b.waits) return `${who} waits for ${b.name}, as nodes know`;
  if (b.key) return `${label} has the key of ${b.name} for ${who.join(' and ')}${b.mode ? ' to ' + b.mode : ''}`;
  return `${who} ${b.mode ? 'may ' + b.mode : 'holds'} ${b.whole}`;
}

let drag = null;
canvas.addEventListener('pointerdown', event => {
  drag = { x: event.offsetX, y: event.offsetY, from: view.from, to: view.to, scroll: scroll, moved: false, overview: event.offsetY > lanesBottom() };
  canvas.setPointerCapture(event.pointerId);
  if (drag.overview) centre(event.offsetX);
});
canvas.addEventListener('pointermove', event => {
  if (!drag) {
    showTip(event.offsetX, event.offsetY);
    return;
  }
  if (drag.overview) {
    centre(event.offsetX);
    return;
  }
  const dx = event.offsetX - drag.x;
  if (!drag.moved && Math.hypot(dx, event.offsetY - drag.y) < 4) return;
  drag.moved = true;
  canvas.classList.add('moving');
  hideTip();
  const dt = dx / (width - gutter) * (drag.to - drag.from);
  scrollTo(drag.scroll - (event.offsetY - drag.y));
  shared.look(drag.from - dt, drag.to - dt);
});
canvas.addEventListener('pointerup', event => {
  const hit = drag && !drag.moved && !drag.overview && under(event.offsetX, event.offsetY);
  drag = null;
  canvas.classList.remove('moving');
  if (hit) choose(hit.entry);
});
canvas.addEventListener('pointercancel', () => { drag = null; });
canvas.addEventListener('pointerleave', hideTip);
canvas.addEventListener('wheel', event => {
  event.preventDefault();
  const pixels = event.deltaMode === 0 ? 1 : 30;
  if (event.altKey) {
    scrollTo(scroll + event.deltaY * pixels);
    redraw();
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    shared.move((event.deltaX || event.deltaY) * pixels / width);
  } else {
    shared.zoom(Math.exp(event.deltaY * pixels * .0016), timeAt(Math.max(gutter, event.offsetX)));
  }
  hideTip();
}, { passive: false });

// centre moves the view to where the overview was clicked.
function centre(px) {
  const at = whole.from + (px - gutter) / (width - gutter) * (whole.to - whole.from), span = view.to - view.from;
  shared.look(at - span / 2, at + span / 2);
}

function showTip(px, y) {
  const hit = under(px, y), tip = part('tip');
  if (!hit || !entries[hit.entry]) {
    hideTip();
    return;
  }
  tip.textContent = describe(hit);
  tip.hidden = false;
  tip.style.left = Math.max(4, Math.min(px + 14, width - tip.offsetWidth - 6)) + 'px';
  tip.style.top = (y + 18 + tip.offsetHeight > height ? y - tip.offsetHeight - 10 : y + 18) + 'px';
}

function hideTip() { part('tip').hidden = true; }

// The legend shows each sign as it is drawn.
function drawLegend() {
  const bar = (radius, high, how = {}) => drawBox(1, 8 - high / 2, 32, high, radius, how.light, how.empty);
  const message = (state, ...to) => { dashed(dashOf(state), () => line(2, 3, ...to)); drawEnd(state, [2, 3, ...to]); };
  const dot = (shape, hollow) => () => drawDot(17, 8, 4.5, { client: 0, shape, hollow });
  const shade = name => () => { ctx.fillStyle = colours[name + ' pattern']; ctx.fillRect(1, 1, 32, 14); };
  const state = name => messages.some(m => m.state === name), shaded = name => faults.some(f => f.shade === name);
  const signs = [
    [true, 'a client considers itself the holder', () => bar(6, 14)],
    [true, 'a node has the lock’s key', () => bar(1, 10)],
    [conflict.length, 'a grant that the violation is about', () => { bar(6, 8); drawFrame(1.5, 1.5, 31, 13); }],
    [violations.length, 'an invariant is broken', () => { ctx.fillStyle = colours.violation; ctx.fillRect(15.5, 0, 3, 16); }],
    [bars.some(b => b.waits), 'a client waits, as nodes know', () => bar(6, 14, { light: true, empty: true })],
    [bars.some(b => b.line), 'the wait queue on a node, in its order', () => { ctx.fillStyle = colours.soft; ctx.fillRect(1, 2, 32, 7); drawQueue([0, 1], 1, 10, 32, 3); }],
    [groups.length, 'one lock of several names', () => { for (const y of [1, 10]) { box(1, y, 32, 5, 2); ctx.fill(); } ctx.fillRect(1, 3, 3, 10); }],
    [bars.some(b => b.mode === 'read'), 'to read, which several may', () => bar(3, 14, { light: true })],
    [true, 'message (grey: to connect)', () => message('sent', 32, 13)],
    [state('lost'), 'lost', () => message('lost', 18, 9)],
    [messages.some(m => m.state === 'held'), 'held back on its way', () => message('held', 32, 13)],
    [state('stuck'), 'held back forever', () => message('stuck', 18, 9)],
    [true, 'node executes a command; hollow: refuses it', dot('execute')],
    [dots.some(d => d.shape === 'step'), 'step of the plan', dot('step')],
    [dots.some(d => d.shape === 'access'), 'the resource takes a request; hollow: refuses it', dot('access', true)],
    [shaded('down'), 'crashed or killed', shade('down')],
    [shaded('stopped'), 'stopped or asleep', shade('stopped')],
    [shaded('link'), 'trouble on links', shade('link')],
    [shaded('other'), 'other faults: replica, slow, busy, wrong clock', shade('other')],
  ].filter(([drawn]) => drawn);
  const ratio = window.devicePixelRatio || 1, own = ctx;
  part('legend').replaceChildren(...signs.map(([, text, paint]) => {
    const picture = make('canvas', { width: 34 * ratio, height: 16 * ratio, ariaHidden: 'true' });
    ctx = picture.getContext('2d');
    ctx.scale(ratio, ratio);
    ctx.fillStyle = ctx.strokeStyle = colourOf(0);
    ctx.lineWidth = 1.5;
    paint();
    return make('li', {}, picture, text);
  }));
  ctx = own;
}

// The table shows the entries a page at a time.
const pageSize = 100, table = part('table'), which = part('which');
let firstRow = 0;
function showTable(first) {
  const list = which.value === 'all' ? entries.map((e, i) => i) : notable;
  firstRow = Math.max(0, Math.min(first, Math.floor((list.length - 1) / pageSize) * pageSize));
  const shown = list.slice(firstRow, firstRow + pageSize);
  root.querySelector('tbody').replaceChildren(...shown.map(i => {
    const e = entries[i];
    return make('tr', {},
      make('td', {}, make('button', { type: 'button', title: 'Show it in the picture', onclick: () => { choose(i); canvas.scrollIntoView({ block: 'center' }); } }, ms(e.at))),
      make('td', {}, e.client >= 0 ? clientName(e.client) : ''), make('td', {}, e.node >= 0 ? nodeName(e.node) : ''), make('td', {}, inWords(e)));
  }));
  part('page-at').textContent = shown.length ? `${firstRow + 1} to ${firstRow + shown.length} of ${list.length}` : 'none';
  part('page-back').disabled = firstRow === 0;
  part('page-on').disabled = firstRow + pageSize >= list.length;
}
table.ontoggle = () => { if (table.open) showTable(firstRow); };
which.onchange = () => showTable(0);
part('page-back').onclick = () => showTable(firstRow - pageSize);
part('page-on').onclick = () => showTable(firstRow + pageSize);

for (const button of root.querySelectorAll('[data-step]')) {
  const [of, step] = { previous: ['event', -1], next: ['event', 1], previousNotable: ['notable', -1], nextNotable: ['notable', 1] }[button.dataset.step];
  button.onclick = () => choose(next[of](step));
}
new ResizeObserver(() => { if (root.isConnected && canvas.clientWidth !== width) resize(); }).observe(root);

// begin shows the run, once the root is on the page.
function begin() {
  readColours();
  showStory();
  drawLegend();
  resize();
  seek(shared.time);
}

return {
  run, begin, seek, redraw, resize, goToViolation, canvas, violated,
  colour: () => { readColours(); drawLegend(); showEvent(); },
  state: () => stateAt(shared.time).map(s => s.text).join(', '),
  near: (of, step) => {
    const i = next[of](step);
    return { at: entries[i]?.at, choose: () => choose(i) };
  },
};
