// Draws the part of the run that is in view.

const canvas = root.querySelector('canvas');
let ctx = canvas.getContext('2d');
const axisHeight = 44, rowHeight = 17, overviewHeight = 34, shortest = 20e3;
const font = '12px system-ui, sans-serif', smallFont = '11px system-ui, sans-serif', tinyFont = '10px system-ui, sans-serif';
ctx.font = tinyFont;
const longestName = names.length > 1 ? Math.max(...names.map(n => ctx.measureText(n).width)) : 0;

const view = shared.view; // from and to: the time that all viewers show
let scroll = 0;
let width = 0, height = 0;
let narrow = false;
let gutter = 0, nameRoom = 0; // for the labels of the lanes, and for names in them
let unit = 0;      // the height of a track
let current = 0;   // the entry that the panel is about
let hits = [];     // what was drawn, to be found under the pointer
let colours = {};

const ribbonTop = axisHeight;
let ribbonRows = 0, ribbonHeight = 0, lanesTop = 0;
const lanesBottom = () => height - overviewHeight;
const resourceHeight = 24;
let groupGap = 22; // room for messages between the last client and the first node, at least
const firstNode = firstClient + run.clients;
const messageRoom = 17; // of a lane, for the line that messages meet
const laneTop = i => lanesTop + lanes[i].top - scroll;
const heightOf = i => i < firstClient ? resourceHeight : messageRoom + lanes[i].tracks * unit;
const lanesHeight = () => lanes[lanes.length - 1].top + heightOf(lanes.length - 1);
const x = t => gutter + (t - view.from) / (view.to - view.from) * (width - gutter);
const timeAt = px => view.from + (px - gutter) / (width - gutter) * (view.to - view.from);

// Messages meet a lane at its line, which is below a client's bars and above a node's.
const lineOf = i => laneTop(i) + { resource: resourceHeight / 2, client: heightOf(i) - 7, node: 7 }[lanes[i].kind];

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const get = name => style.getPropertyValue('--' + name).trim();
  colours = { clients: get('clients').split(' ') };
  const others = ['paper', 'panel', 'ink', 'soft', 'line', 'lane', 'outside', 'accent', 'violation', 'onbar', 'link', 'down', 'stopped', 'other'];
  for (const name of others) colours[name] = get(name);
  for (const shade of ['down', 'stopped', 'link', 'other']) colours[shade + ' pattern'] = hatch(shade, colours[shade]);
}

const colourOf = client => client < 0 ? colours.soft : colours.clients[client % colours.clients.length];

// hatch makes the pattern of a shade: they differ in more than colour.
function hatch(shade, colour) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const t = tile.getContext('2d');
  t.globalAlpha = .12;
  t.fillStyle = colour;
  t.fillRect(0, 0, 8, 8);
  t.globalAlpha = shade === 'down' ? .75 : .35;
  t.strokeStyle = colour;
  const path = { down: 'M-8 8L0 0M0 8L8 0M8 8L16 0', stopped: 'M2.5 0V8', link: 'M2 2h1v1h-1zM6 6h1v1h-1z', other: 'M0 4.5H8' }[shade];
  t.stroke(new Path2D(path));
  return ctx.createPattern(tile, 'repeat');
}

function resize() {
  const ratio = window.devicePixelRatio || 1;
  width = canvas.clientWidth;
  narrow = width < 600;
  nameRoom = Math.min(narrow ? 40 : 70, longestName);
  gutter = Math.max((narrow ? 36 : 70) + nameRoom, firstClient ? 66 : 0); // the resource has a longer label
  ribbonRows = narrow ? 4 : 6; // at most
  packFaults(whole.to - whole.from);
  ribbonRows = Math.max(0, ...faults.map(f => f.row + 1));
  ribbonHeight = ribbonRows ? ribbonRows * rowHeight + 7 : 0;
  lanesTop = ribbonTop + ribbonHeight;
  const below = root.clientWidth < 900 ? 290 : 80;
  const room = Math.max(300, window.innerHeight - canvas.getBoundingClientRect().top - window.scrollY - below);
  const tracks = lanes.map(lane => lane.tracks);
  const wanted = (room - lanesTop - overviewHeight - 22 - firstClient * resourceHeight - messageRoom * (run.clients + run.nodes)) / tracks.reduce((sum, n) => sum + n, 0);
  unit = Math.floor(Math.max(15, Math.min(wanted, 59 / Math.max(...tracks))));
  const low = lanes.reduce((sum, lane, i) => sum + heightOf(i), lanesTop + overviewHeight);
  groupGap = Math.max(22, Math.min(narrow ? 120 : 260, room - low));
  let top = 0;
  lanes.forEach((lane, i) => {
    if (i === firstNode) top += groupGap;
    lane.top = top;
    top += heightOf(i);
  });
  height = lanesTop + Math.min(lanesHeight(), Math.max(1.4 * room - lanesTop - overviewHeight, 360)) + overviewHeight;
  canvas.style.height = height + 'px';
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  scrollTo(scroll);
  draw(); // at once: a canvas that changes its size is empty
}

function scrollTo(to) {
  scroll = Math.max(0, Math.min(to, lanesTop + lanesHeight() - lanesBottom()));
}

let due = false;
function redraw() {
  if (!due) {
    due = true;
    requestAnimationFrame(() => { due = false; draw(); });
  }
}

// All of the runs, as the picture shows it and the strip below does always.
const whole = shared.whole;

function draw() {
  if (width <= gutter) return; // it cannot be seen
  hits = [];
  ctx.clearRect(0, 0, width, height);
  ctx.fillStyle = colours.paper;
  ctx.fillRect(0, 0, width, height);
  ctx.font = font;
  ctx.textBaseline = 'middle';

  clip(gutter, lanesTop, width - gutter, lanesBottom() - lanesTop, () => {
    drawLanes();
    const words = [];
    within(shades, view.from, view.to, s => drawShade(s, words));
    drawMessages();
    within(bars, view.from, view.to, drawBar);
    groups.forEach(drawGroup);
    conflict.forEach(drawConflict);
    drawDots();
    drawWords(words);
    drawFuture();
  });
  packFaults(view.to - view.from);
  clip(gutter, ribbonTop, width - gutter, ribbonHeight, drawRibbon);
  clip(0, lanesTop, width, lanesBottom() - lanesTop, drawLabels);
  drawScroll();
  clip(gutter, 0, width - gutter, lanesBottom(), drawMarks);
  clip(gutter, lanesTop, width - gutter, lanesBottom() - lanesTop, drawCurrent);
  drawOverview();
}

function clip(left, top, w, h, what) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, w, h);
  ctx.clip();
  what();
  ctx.restore();
}

// drawFuture pales what comes after the time that the slider shows.
function drawFuture() {
  const left = Math.max(gutter, x(shared.time) + 1);
  ctx.fillStyle = colours.paper;
  if (left < width) pale(.55, () => ctx.fillRect(left, lanesTop, width - left, lanesBottom() - lanesTop));
}

function line(x0, y0, x1, y1) {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

// polygon begins a shape with these corners, box one with round ones.
function polygon(...points) {
  ctx.beginPath();
  for (const [px, y] of points) ctx.lineTo(px, y);
  ctx.closePath();
}

function box(left, top, wide, high, radius) {
  ctx.beginPath();
  ctx.roundRect(left, top, wide, high, radius);
}

// dashed draws with these dashes, pale with this share of the colour.
function dashed(dash, what) {
  ctx.setLineDash(dash);
  what();
  ctx.setLineDash([]);
}

function pale(share, what) {
  ctx.globalAlpha = share;
  what();
  ctx.globalAlpha = 1;
}

// write writes a text on a patch of paper.
function write(text, left, y, high, colour) {
  ctx.fillStyle = colours.paper;
  pale(.85, () => ctx.fillRect(left - 2, y - .5 - high / 2, ctx.measureText(text).width + 4, high));
  ctx.fillStyle = colour;
  ctx.fillText(text, left, y);
}

// fitting shortens a text to a width; '' if nothing sensible is left.
function fitting(text, room) {
  if (ctx.measureText(text).width <= room) return text;
  const n = Math.floor(text.length * room / ctx.measureText(text).width) - 1;
  return n < 3 ? '' : text.slice(0, n) + '…';
}

function drawLanes() {
  ctx.lineWidth = 1;
  for (let i = 0; i < lanes.length; i++) {
    ctx.strokeStyle = colours.lane;
    line(Math.max(gutter, x(0)), Math.round(lineOf(i)) + .5, Math.min(width, x(end)), Math.round(lineOf(i)) + .5);
  }
  // Before the beginning and after the end there is nothing.
  ctx.fillStyle = colours.outside;
  if (x(0) > gutter) ctx.fillRect(gutter, lanesTop, x(0) - gutter, height);
  if (x(end) < width) ctx.fillRect(x(end), lanesTop, width - x(end), height);
}

// drawShade shades a lane, or of faults about links only the surroundings of its line.
function drawShade(s, words) {
  const left = Math.max(gutter, x(s.from)), y = lineOf(s.lane);
  if (s.until === s.from) {
    flag(x(s.from), y, colours[s.shade]);
    hits.push({ entry: s.entry, box: [x(s.from) - 4, y - 10, x(s.from) + 8, y + 4], small: true });
    return;
  }
  const right = Math.max(Math.min(width, x(s.until)), left + 1);
  const [top, h] = s.shade === 'link' ? [y - 6, 12] : [laneTop(s.lane) + 1, heightOf(s.lane) - 2];
  ctx.fillStyle = colours[s.shade + ' pattern'];
  ctx.fillRect(left, top, right - left, h);
  hits.push({ entry: s.entry, box: [left, top, right, top + h], below: true });
  words.push({ text: s.word, left: left + 3, right, y, colour: colours[s.shade] });
}

// drawWords says on the lanes what the shades are, where there is room between the
// messages.
function drawWords(words) {
  ctx.font = smallFont;
  const taken = [];
  for (const w of words) {
    const wide = ctx.measureText(w.text).width + 4;
    const blocked = taken.filter(t => t.y === w.y);
    for (const hit of hits) {
      if (hit.segment) {
        const [x0, y0, x1, y1] = hit.segment;
        const at = y => x0 + (x1 - x0) * Math.max(0, Math.min(1, (y - y0) / (y1 - y0)));
        if (Math.min(y0, y1) < w.y + 6 && Math.max(y0, y1) > w.y - 6) blocked.push({ left: Math.min(at(w.y - 6), at(w.y + 6)) - 4, right: Math.max(at(w.y - 6), at(w.y + 6)) + 4 });
      } else if (hit.small && hit.box[1] < w.y + 6 && hit.box[3] > w.y - 6) {
        blocked.push({ left: hit.box[0], right: hit.box[2] });
      }
    }
    blocked.sort((a, b) => a.left - b.left);
    let left = w.left;
    for (const b of blocked) if (left < b.right && left + wide > b.left) left = b.right + 2;
    if (left + wide > w.right) continue;
    taken.push({ left, right: left + wide, y: w.y });
    write(w.text, left + 2, w.y + .5, 12, w.colour);
  }
  ctx.font = font;
}

function flag(px, y, colour) {
  ctx.fillStyle = colour;
  polygon([px, y], [px, y - 9], [px + 7, y - 6], [px, y - 3]);
  ctx.fill();
}

// placeOf is where a message is drawn: from and to, in pixels.
function placeOf(m) {
  const y0 = lineOf(m.lane), y1 = lineOf(m.to), way = { lost: .35, stuck: .5 }[m.state] || 1;
  return [x(m.from), y0, x(m.until), y0 + (y1 - y0) * way];
}

// drawMessages draws lines of one kind together. Of those that would cover each
// other it draws one.
function drawMessages() {
  let n = 0;
  const groups = new Map();
  const drawn = new Set();
  within(messages, view.from, view.to, m => {
    const place = placeOf(m);
    const spot = m.lane * 64 + m.to + ' ' + m.state + Math.round(place[0]) + ' ' + Math.round(place[2]);
    if (drawn.has(spot)) return;
    drawn.add(spot);
    n++;
    const id = m.client + ' ' + m.state + ' ' + m.faint;
    if (!groups.has(id)) groups.set(id, []);
    groups.get(id).push(place);
    hits.push({ entry: m.entry, segment: place });
  });
  const dense = Math.max(.12, Math.min(1, 300 / n));
  for (const [id, places] of groups) {
    const [client, state, faint] = id.split(' ');
    ctx.strokeStyle = ctx.fillStyle = faint === 'true' ? colours.soft : colourOf(+client);
    pale(faint === 'true' ? dense * .6 : dense, () => {
      ctx.lineWidth = 1.2;
      ctx.beginPath();
      for (const [x0, y0, x1, y1] of places) { ctx.moveTo(x0, y0); ctx.lineTo(x1, y1); }
      dashed(dashOf(state), () => ctx.stroke());
      if (n < 400) for (const place of places) drawEnd(state, place);
    });
  }
}

const dashOf = state => state === 'held' || state === 'stuck' ? [2, 4] : [];

// drawEnd draws where a message ends: it arrives, or is lost, or is held back forever.
function drawEnd(state, [x0, y0, px, y]) {
  switch (state) {
    case 'lost':
      ctx.lineWidth = 2;
      for (const slope of [-4, 4]) line(px - 4, y - slope, px + 4, y + slope);
      break;
    case 'stuck':
      for (const left of [-4, 1]) ctx.fillRect(px + left, y - 4, 3, 9);
      break;
    default: {
      const a = Math.atan2(y - y0, px - x0);
      polygon([px, y], ...[a - .35, a + .35].map(b => [px - 8 * Math.cos(b), y - 8 * Math.sin(b)]));
      ctx.fill();
    }
  }
}

// placeOfBar is where a bar is drawn: left, top, width and height.
function placeOfBar(b) {
  const node = lanes[b.lane].kind === 'node';
  const h = Math.min(node ? 17 : 20, unit - 4);
  const base = node ? lineOf(b.lane) + 5 : laneTop(b.lane) + 3;
  const top = base + b.track * unit + Math.max(0, unit - 4 - h) / 2;
  const left = Math.max(gutter - 4, x(b.from)), right = Math.max(Math.min(width + 4, x(Math.min(b.until, end))), left + 1.5);
  return [left, top, right - left, h];
}

function drawBar(b) {
  const [left, top, wide, h] = placeOfBar(b);
  if (b.line) {
    drawQueue(b.clients, left, top + h + 1, wide, Math.min(2, 4 / b.clients.length));
    hits.push({ entry: b.entry, bar: b, box: [left, top + h, left + wide, top + h + 5] });
    return;
  }
  // Readers share a bar, which is light, as is that of one who waits.
  const light = b.mode === 'read' || b.waits, each = h / b.clients.length;
  b.clients.forEach((client, i) => {
    ctx.fillStyle = ctx.strokeStyle = colourOf(client);
    drawBox(left, top + i * each, wide, each, Math.min(b.key ? 1 : 6, wide / 2), light, b.waits);
  });
  ctx.fillStyle = light ? colours.ink : colours.onbar;
  for (const t of b.marks || []) if (t > view.from && t < view.to) ctx.fillRect(x(t) - .5, top, 1, h < 15 ? 2 : 4);
  const inView = Math.max(left, gutter), room = left + wide - inView;
  if (room > 18) {
    ctx.font = h < 13 ? tinyFont : font;
    const [long, short, who] = textsOf(b);
    const text = [long, short, who].find(t => ctx.measureText(t).width + 6 <= room);
    if (text) {
      const start = inView + (text === long ? 6 : 3);
      if (light) write(text, start, top + h / 2 + .5, h - 3, colours.ink); else ctx.fillText(text, start, top + h / 2 + .5);
    }
    ctx.font = font;
  }
  hits.push({ entry: b.entry, bar: b, box: [left, top, left + wide, top + h] });
}

// drawBox fills a box, lightly with a frame, or has a dashed frame only.
function drawBox(left, top, wide, high, radius, light, empty) {
  box(left, top, wide, high, radius);
  if (!empty) pale(light ? .2 : 1, () => ctx.fill());
  if (!light) return;
  box(left + .75, top + .75, Math.max(.5, wide - 1.5), high - 1.5, radius);
  ctx.lineWidth = 1.5;
  dashed(empty ? [4, 3] : [], () => ctx.stroke());
}

// textsOf are what a bar may say, the longest first.
function textsOf(b) {
  const who = b.clients.map(clientName).join('+'), as = b.mode ? ` (${b.mode})` : '';
  const which = names.length > 1 ? ' ' + b.name : '';
  if (b.waits) return [`${who} waits for ${b.name}`, who + ' waits', who];
  if (b.key) return [`${who}'s key${which}${as}`, who + as, who];
  return [`${who} ${b.mode ? b.mode + 's' : 'holds'} ${b.whole}` + (b.token ? `, token ${shortToken(b.token)}` : ''),
    `${who}${which}${as} ${b.token ? shortToken(b.token) : ''}`, who + as];
}

// drawQueue draws below a key who waits for it on the node: thin lines, the first of the queue on top.
function drawQueue(clients, left, top, wide, each) {
  clients.forEach((client, i) => {
    ctx.fillStyle = colourOf(client);
    ctx.fillRect(left, top + i * each, wide, Math.min(2, each * .8));
  });
}

// drawGroup ties bars that are one lock together, where they begin.
function drawGroup(group) {
  const from = Math.max(...group.map(b => b.from));
  if (from < view.from || from > view.to) return;
  const places = group.map(placeOfBar), middle = ([, top, , h]) => top + h / 2;
  ctx.strokeStyle = colourOf(group[0].clients[0]);
  ctx.lineWidth = 3;
  line(x(from) + 1.5, Math.min(...places.map(middle)), x(from) + 1.5, Math.max(...places.map(middle)));
}

// drawConflict frames a lock that the violation is about.
function drawConflict(b) {
  const [left, top, wide, h] = placeOfBar(b);
  drawFrame(left - 1, top - 2, wide + 2, h + 4);
}

function drawFrame(left, top, wide, high) {
  ctx.strokeStyle = colours.violation;
  ctx.lineWidth = 2.5;
  box(left, top, wide, high, 7);
  ctx.stroke();
}

function drawDots() {
  const drawn = new Set();
  let shown = 0;
  within(dots, view.from, view.to, () => shown++);
  within(dots, view.from, view.to, d => {
    const px = x(d.from), y = lineOf(d.lane);
    const spot = d.lane + d.shape + d.hollow + Math.round(px);
    if (drawn.has(spot)) return;
    drawn.add(spot);
    const r = d.shape === 'access' ? 5 : shown > 500 ? 1.5 : 3;
    drawDot(px, y, r, d);
    hits.push({ entry: d.entry, box: [px - r - 2, y - r - 2, px + r + 2, y + r + 2], above: true, small: true });
  });
}

function drawDot(px, y, r, { client, shape, hollow }) {
  ctx.strokeStyle = colourOf(client);
  ctx.fillStyle = hollow ? colours.paper : colourOf(client);
  ctx.lineWidth = 1.6;
  if (shape === 'step') polygon([px, y - 5], [px + 5, y], [px, y + 5], [px - 5, y]); else box(px - r, y - r, 2 * r, 2 * r, r);
  ctx.fill();
  ctx.stroke();
}

// packFaults gives faults rows in which their texts have room while so much time is in
// view.
function packFaults(span) {
  const scale = (width - gutter) / span, ends = [];
  ctx.font = smallFont;
  for (const f of faults) {
    const left = f.from * scale;
    f.row = ends.findIndex(e => e <= left);
    if (f.row < 0) f.row = ends.length < ribbonRows ? ends.length : ends.indexOf(Math.min(...ends));
    ends[f.row] = Math.max(f.until * scale, left + ctx.measureText(f.text).width + 16);
  }
  ctx.font = font;
}

// drawRibbon draws the strip of faults, with their texts. A text that has no room is in
// the panel, once its fault is chosen.
function drawRibbon() {
  const visible = [], next = new Map(), until = []; // where the next one of the row begins, and where the text before ends
  within(faults, view.from, view.to, f => visible.push(f));
  visible.forEach((f, i) => next.set(f, visible.slice(i + 1).find(o => o.row === f.row)));
  for (const f of visible) {
    const left = Math.max(gutter, x(f.from)), right = Math.min(width, x(f.until));
    const top = ribbonTop + 4 + f.row * rowHeight;
    const point = f.until === f.from;
    if (point) {
      flag(left, top + 12, colours[f.shade]);
    } else {
      ctx.fillStyle = colours[f.shade + ' pattern'];
      ctx.fillRect(left, top, Math.max(1.5, right - left), rowHeight - 3);
      ctx.fillStyle = colours[f.shade];
      ctx.fillRect(left, top, 2.5, rowHeight - 3);
    }
    ctx.font = smallFont;
    const most = (next.get(f) ? x(next.get(f).from) : width) - 6, indent = point ? 10 : 6;
    const fits = text => Math.max(until[f.row] || gutter, Math.min(left + indent, most - ctx.measureText(text).width));
    const texts = [f.text, f.text.replace(/ for \S+$/, '')];
    const text = texts.find(t => fits(t) + ctx.measureText(t).width <= most + 1) || fitting(texts[1], most - left - indent);
    if (text) {
      const start = fits(text);
      until[f.row] = start + ctx.measureText(text).width + 6;
      write(text, start, top + 7.5, rowHeight - 5, colours.ink);
    }
    ctx.font = font;
    hits.push({ entry: f.entry, fault: f, text, box: [left - 3, top, Math.max(right, left + 8), top + rowHeight - 2] });
  }
}

function drawLabels() {
  ctx.fillStyle = colours.panel;
  ctx.fillRect(0, lanesTop, gutter, height);
  lanes.forEach((lane, i) => {
    const y = laneTop(i) + heightOf(i) / 2;
    if (lane.client >= 0) {
      ctx.fillStyle = colourOf(lane.client);
      ctx.fillRect(0, laneTop(i) + 3, 4, heightOf(i) - 6);
    }
    ctx.fillStyle = colours.ink;
    ctx.font = (lane.kind === 'resource' ? '' : '600 ') + font;
    ctx.fillText(lane.label, 10, y);
    ctx.font = font;
    if (lane.kind !== 'resource') {
      const w = ctx.measureText(lane.label).width;
      ctx.fillStyle = colours.soft;
      ctx.font = tinyFont;
      if (!narrow) ctx.fillText(lane.kind, 16 + w, y + 1);
      if (names.length > 1) for (const row of lane.rows) drawName(i, row);
      ctx.font = font;
    }
  });
}

// drawName writes the name of a row next to its lane.
function drawName(i, row) {
  const top = lanes[i].kind === 'node' ? lineOf(i) + 5 : laneTop(i) + 3;
  const text = fitting(row.name, nameRoom);
  ctx.fillText(text, gutter - 4 - ctx.measureText(text).width, top + (row.track + row.tracks / 2) * unit - 1.5);
}

// drawScroll shows which of the lanes are in view, if not all are.
function drawScroll() {
  const room = lanesBottom() - lanesTop, share = room / lanesHeight();
  if (share >= 1) return;
  ctx.fillStyle = colours.lane;
  ctx.fillRect(width - 6, lanesTop + scroll * share, 5, room * share);
}

// drawMarks draws the axis of time, and what concerns all lanes.
function drawMarks() {
  const ticksAt = axisHeight - 14;
  const taken = []; // spans of the axis that have a label
  const label = (px, text, colour, y, boxed) => {
    const w = ctx.measureText(text).width;
    const left = Math.max(gutter + 2, Math.min(px - w / 2, width - w - 6));
    if (taken.some(t => t.y === y && left < t.right + 8 && left + w > t.left - 8)) return;
    taken.push({ left, right: left + w, y });
    if (boxed) {
      ctx.fillStyle = colour;
      ctx.fillRect(left - 5, y - 8, w + 10, 16);
      colour = colours.paper;
    }
    ctx.fillStyle = colour;
    ctx.fillText(text, left, y);
  };
  const inView = t => t >= view.from && t <= view.to;
  const rule = (t, top, colour, wide, dash) => { // through all lanes
    ctx.strokeStyle = colour;
    ctx.lineWidth = wide;
    dashed(dash, () => line(x(t), top, x(t), lanesBottom()));
  };

  for (const v of violations.slice().sort((a, b) => b.worst - a.worst)) {
    if (!inView(v.at)) continue;
    rule(v.at, 16, colours.violation, v.worst ? 2.5 : 1.5, v.outside ? [7, 4] : []);
    taken.push({ left: x(v.at), right: x(v.at), y: ticksAt });
    ctx.font = '600 ' + font;
    const granted = v.worst && !narrow ? conflict.filter(b => b.from === v.at).map(b => clientName(b.clients[0]) + ' granted: ').join('') : '';
    label(x(v.at), granted + (narrow ? 'broken' : brokenWords(v)), colours.violation, 12, true);
    ctx.font = font;
    const i = entries.findIndex(e => e.kind === 'violation' && e.at === v.at);
    hits.push({ entry: i, box: [x(v.at) - 3, 0, x(v.at) + 3, lanesBottom()], above: true });
  }
  for (const b of conflict) {
    if (!inView(b.from)) continue;
    rule(b.from, 20, colours.violation, 1, [3, 3]);
    label(x(b.from), clientName(b.clients[0]) + ' granted', colours.violation, 12);
  }
  const calm = entries.find(e => e.kind === 'calm');
  if (calm && inView(calm.at)) {
    rule(calm.at, 16, colours.soft, 1, [2, 3]);
    taken.push({ left: x(calm.at), right: x(calm.at), y: ticksAt });
    label(x(calm.at), 'faults over', colours.soft, 12);
  }
  if (inView(end)) label(x(end), 'end', colours.soft, 12);

  // Ticks, at least so far apart.
  let step = 1;
  while (step * (width - gutter) / (view.to - view.from) < 100) step *= String(step)[0] === '2' ? 2.5 : 2;
  const seconds = view.to > 10e9;
  const unit = seconds ? 1e9 : 1e6;
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  for (let t = Math.ceil(Math.max(0, view.from) / step) * step; t <= Math.min(view.to, end); t += step) {
    ctx.strokeStyle = colours.line;
    ctx.lineWidth = 1;
    line(x(t), axisHeight - 6, x(t), axisHeight);
    label(x(t), (t / unit).toFixed(digits) + (seconds ? ' s' : ' ms'), colours.soft, ticksAt);
  }
  ctx.strokeStyle = colours.line;
  line(gutter, axisHeight - .5, width, axisHeight - .5);
}

// drawCurrent marks the event that the panel is about.
function drawCurrent() {
  const e = entries[current];
  if (!e) return;
  ctx.strokeStyle = ctx.fillStyle = colours.ink;
  ctx.lineWidth = 1;
  line(x(shared.time), lanesTop, x(shared.time), lanesBottom());
  const m = messages[firstWhere(messages, m => m.entry >= current)];
  ctx.lineWidth = 3;
  if (m && m.entry === current) {
    const place = placeOf(m);
    dashed(dashOf(m.state), () => line(...place));
    drawEnd(m.state, place);
  }
  ctx.lineWidth = 2;
  for (const lane of lanesOf(e)) {
    box(x(e.at) - 7, lineOf(lane) - 7, 14, 14, 7);
    ctx.stroke();
  }
}

// lanesOf returns the lanes that an entry is about, the one where it happens first.
function lanesOf(e) {
  if (e.kind === 'access') return [0, clientLane(e.client)];
  if (e.kind === 'fault') return shades.filter(s => entries[s.entry] === e).map(s => s.lane);
  const c = e.client >= 0 ? [clientLane(e.client)] : [], n = e.node >= 0 ? [nodeLane(e.node)] : [];
  switch (e.kind) {
    case 'send': case 'lost': case 'held':
      return e.to_client ? n : c;
    case 'execute':
      return n;
    case 'reply':
      return c;
  }
  return [...c, ...n];
}

// drawOverview draws how much happens when in all of the run, and what is in view.
const overviewX = t => gutter + (t - whole.from) / (whole.to - whole.from) * (width - gutter);
let density = [];
function drawOverview() {
  const top = lanesBottom(), wide = Math.round((width - gutter) / 2);
  ctx.fillStyle = colours.panel;
  ctx.fillRect(0, top, width, overviewHeight);
  ctx.fillStyle = colours.soft;
  ctx.font = smallFont;
  ctx.fillText(narrow ? 'all' : 'whole run', 10, top + overviewHeight / 2);
  ctx.font = font;
  if (density.length !== wide) {
    density = new Array(wide).fill(0);
    for (const e of entries) density[Math.min(wide - 1, Math.floor((overviewX(e.at) - gutter) / 2))]++;
  }
  const most = Math.max(...density);
  ctx.fillStyle = colours.lane;
  density.forEach((n, i) => {
    const h = n ? 2 + (overviewHeight - 8) * Math.sqrt(n / most) : 0;
    ctx.fillRect(gutter + i * 2, top + overviewHeight - h - 1, 1.5, h);
  });
  const left = Math.max(gutter, overviewX(view.from)), right = Math.min(width, overviewX(view.to));
  ctx.strokeStyle = ctx.fillStyle = colours.accent;
  pale(.12, () => ctx.fillRect(left, top, right - left, overviewHeight));
  ctx.lineWidth = 1.5;
  ctx.strokeRect(left + 1, top + 1, Math.max(2, right - left - 2), overviewHeight - 2);
  ctx.fillStyle = colours.violation;
  for (const v of violations) ctx.fillRect(overviewX(v.at) - 1.25, top, 2.5, overviewHeight);
}
