// Reads the run, and makes of its entries what the picture consists of.

const entries = run.entries || [];
const faults = run.faults || [];
const violations = run.violations || [];
const last = entries.length ? entries[entries.length - 1].at : 0; // what follows is silence
const end = Math.max(run.end, last, 1);

const clientName = c => c < 0 ? 'somebody' : 'c' + (c + 1);
const nodeName = n => 'n' + (n + 1);

// The owner of a key is some client; commands say which.
const clientOf = new Map();
const names = []; // of the locks
const tokens = [];
for (const e of entries) {
  if (e.owner && e.client >= 0) clientOf.set(e.owner, e.client);
  if (['key', 'belief', 'access'].includes(e.kind)) for (const name of e.name.split(',')) if (!names.includes(name)) names.push(name);
  if (e.token) tokens.push(String(e.token));
}

names.sort();
const ownerClient = owner => clientOf.has(owner) ? clientOf.get(owner) : -1;
const ownerName = owner => clientOf.has(owner) ? clientName(clientOf.get(owner)) : 'an unknown owner';

// Tokens begin all alike, since they are times: what differs is enough in the picture.
let alike = 0;
if (tokens.length > 1) {
  while (alike < tokens[0].length && tokens.every(t => t[alike] === tokens[0][alike])) alike++;
  alike = Math.min(alike, Math.max(0, Math.min(...tokens.map(t => t.length)) - 4));
}
const shortToken = t => (alike > 2 ? '…' : '') + String(t).slice(alike > 2 ? alike : 0);

// Lanes from top to bottom.
const lanes = [];
if (entries.some(e => e.kind === 'access')) lanes.push({ kind: 'resource', label: 'resource' });
for (let c = 0; c < run.clients; c++) lanes.push({ kind: 'client', label: clientName(c), client: c });
for (let n = 0; n < run.nodes; n++) lanes.push({ kind: 'node', label: nodeName(n), client: -1 });
const firstClient = lanes.length - run.clients - run.nodes;
const clientLane = c => firstClient + c;
const nodeLane = n => firstClient + run.clients + n;

// When nodes were down: nobody could see a key on them.
const outages = faults.filter(f => f.verb === 'crash').flatMap(f => f.parts.map(p => ({ node: p.node, from: f.at, until: p.until })));
const isDown = (node, t) => outages.some(o => o.node === node && o.from <= t && t < o.until);

// What is drawn. Each has the entry at which it begins, from and until when it
// lasts, and the lanes that it touches.
const bars = [];     // beliefs of clients, keys of nodes, and clients that wait
const groups = [];   // of bars that are one lock
const messages = [];
const dots = [];

collectBars();
collectWaiting();
for (const lane of lanes) lane.rows = rowsOf(lane);
collectMessages();
collectDots();

function collectBars() {
  const beliefs = new Map(); // by owner: its bars, one for each name
  const keys = new Map();    // by node and name
  const bar = (e, i, lane, clients, name) => {
    const b = { entry: i, lane, from: e.at, until: end, clients, name, mode: e.mode, token: e.token, marks: [] };
    bars.push(b);
    return b;
  };
  const link = list => {
    if (list.length > 1) groups.push(list);
    for (const b of list) b.whole = list.map(b => b.name).sort().join(' + ');
  };
  entries.forEach((e, i) => {
    switch (e.kind) {
      case 'belief':
        beliefs.set(e.owner, e.name.split(',').map(name => bar(e, i, clientLane(e.client), [e.client], name)));
        link(beliefs.get(e.owner));
        break;
      case 'belief end':
        for (const b of beliefs.get(e.owner) || []) b.until = e.at;
        beliefs.delete(e.owner);
        break;
      case 'joint':
        link([e.owner, ...e.more].flatMap(owner => beliefs.get(owner) || []));
        break;
      case 'key': {
        const id = e.node + ' ' + e.name;
        const before = keys.get(id);
        if (before && before.until > e.at && e.until > e.at && !isDown(e.node, e.at) && before.owner === e.owner && before.mode === e.mode && (before.more || '') === String(e.more || '')) {
          if (e.until - before.until > 2e6) before.marks.push(e.at); // less is the clock's grain
          before.until = e.until;
          break;
        }
        if (before) before.until = Math.min(before.until, e.at);
        keys.delete(id);
        if (!(e.until > e.at) || isDown(e.node, e.at)) break;
        const clients = [e.owner, ...(e.more || [])].map(ownerClient).sort((a, b) => a - b);
        const b = bar(e, i, nodeLane(e.node), clients, e.name);
        b.until = e.until;
        b.owner = e.owner;
        b.more = String(e.more || '');
        b.key = true;
        keys.set(id, b);
      }
    }
  });
}

// collectWaiting finds out who waits: on each node in which order, as the node
// knows, and each client from the first node that knows to the last, or until it is
// granted the name.
function collectWaiting() {
  const lines = new Map(); // by node and name: the latest
  const spans = new Map(); // by waiter
  entries.forEach((e, i) => {
    if (e.kind !== 'key') return;
    const id = e.node + ' ' + e.name, before = lines.get(id), waiting = isDown(e.node, e.at) ? [] : e.waiting || [];
    const until = Math.max(e.at, ...waiting.map(w => w.until)), clients = waiting.map(w => w.client);
    for (const w of waiting) {
      if (!spans.has(w.number)) spans.set(w.number, { entry: i, lane: clientLane(w.client), from: e.at, clients: [w.client], name: e.name, waits: true });
    }
    if (before && before.until >= e.at && String(before.clients) === String(clients)) {
      before.until = until;
    } else {
      if (before) before.until = Math.min(before.until, e.at);
      lines.set(id, { entry: i, lane: nodeLane(e.node), from: e.at, until, clients, name: e.name, numbers: waiting.map(w => w.number), line: true });
      if (clients.length) bars.push(lines.get(id));
    }
  });
  const beliefs = bars.filter(b => b.whole);
  for (const line of bars.filter(b => b.line)) {
    for (const number of line.numbers) spans.get(number).until = Math.max(line.until, spans.get(number).until || 0);
  }
  for (const span of spans.values()) {
    const granted = beliefs.filter(b => b.lane === span.lane && b.name === span.name && b.from > span.from && b.from < span.until);
    span.until = Math.max(...granted.map(b => b.from), granted.length ? 0 : span.until);
    bars.push(span);
  }
}

// rowsOf gives a lane a row for each name that is there, and a row as many tracks as
// bars overlap in it.
function rowsOf(lane) {
  const rows = [];
  lane.tracks = 0;
  for (const name of names) {
    const ends = [];
    const own = bars.filter(b => lanes[b.lane] === lane && b.name === name).sort((a, b) => a.from - b.from);
    if (!own.some(b => !b.line) && names.length > 1) continue;
    for (const b of own) {
      let track = b.line ? 0 : ends.findIndex(t => t <= b.from);
      if (track < 0) track = ends.length;
      if (!b.line) ends[track] = b.until;
      b.track = lane.tracks + track;
    }
    rows.push({ name, track: lane.tracks, tracks: Math.max(1, ends.length) });
    lane.tracks += Math.max(1, ends.length);
  }
  lane.tracks = Math.max(1, lane.tracks);
  return rows;
}

function collectMessages() {
  const held = new Map(); // by message
  const between = e => e.to_client ? [nodeLane(e.node), clientLane(e.client)] : [clientLane(e.client), nodeLane(e.node)];
  const message = (e, i, state, until) => {
    const [from, to] = between(e);
    const m = { entry: i, lane: from, to, from: e.at, until, client: e.client, state, faint: !e.name, answer: !!e.to_client };
    messages.push(m);
    return m;
  };
  const trips = [];
  entries.forEach((e, i) => {
    const h = held.get(e.message);
    switch (e.kind) {
      case 'send':
        trips.push(e.until - e.at);
        message(e, i, 'sent', e.until);
        break;
      case 'lost':
        message(e, i, 'lost', e.at);
        break;
      case 'held':
        held.set(e.message, message(e, i, 'held', e.at));
        break;
      case 'released':
        if (h) h.released = e.at;
        break;
      case 'execute':
      case 'reply':
        // A held message arrives when it is acted on.
        if (h && h.released !== undefined && h.answer === (e.kind === 'reply')) {
          h.until = e.at;
          h.arrived = true;
          held.delete(e.message);
        }
    }
  });
  trips.sort((a, b) => a - b);
  const usual = trips.length ? trips[trips.length >> 1] : 1e6;
  for (const m of messages) {
    if (m.state === 'held' && !m.arrived) m.state = 'stuck';
    if (m.state === 'lost' || m.state === 'stuck') m.until = m.from + usual / 2;
  }
}

function collectDots() {
  entries.forEach((e, i) => {
    const dot = (lane, shape, hollow) => dots.push({ entry: i, lane, from: e.at, until: e.at, client: e.client, shape, hollow });
    switch (e.kind) {
      case 'access':
        dot(0, 'access', e.text.includes('refused'));
        break;
      case 'execute':
        dot(nodeLane(e.node), 'execute', e.text.includes('refused'));
        break;
      case 'step':
        dot(clientLane(e.client), 'step', false);
    }
  });
}

// Faults: what each is in words, how it shades lanes, and what stands there if not the fault's own word.
const verbs = {
  cut: ['nothing gets through', 'link'], delay: ['messages take longer', 'link'], loss: ['a share of the messages is lost', 'link'],
  duplicate: ['a share of the messages arrives twice', 'link'], reorder: ['messages overtake each other', 'link'],
  hold: ['messages are kept back', 'link'], release: ['what was kept back goes on', 'link'], deafen: ['notices of releases are lost', 'link'],
  halfopen: ['these connections are dead, and neither end knows', 'link'], reset: ['these connections are closed, and both ends know', 'link'],
  heal: ['these links work again', 'link'],
  crash: ['the server dies', 'down', 'down'], kill: ['the process dies', 'down', 'dead'],
  pause: ['the process stands still, and its clocks run', 'stopped', 'stopped'], suspend: ['the machine sleeps', 'stopped', 'asleep'],
  restart: ['the server starts again'], start: ['the process starts again'],
  demote: ['the server becomes a replica, and refuses what writes', 'other', 'replica'],
  promote: ['the server is a master again, with what it has'],
  slow: ['each command takes longer'], block: ['the server is busy with one script'], evict: ['the server drops the locks'],
  forge: ['a stranger repeats and forges what the server says of hand-overs'],
  starve: ['the server has a processor for that share of each 100 ms', 'other', 'starved'], full: ['the server'],
  flush: ['the server drops all its keys'], scriptflush: ['the server forgets its scripts'],
  skew: ['the time of day is set wrong'], step: ['the time of day jumps'], rate: ['the clocks run at another rate'],
  strobe: ['the time of day oscillates'],
  alias: ['these are one server, and each is a database of it: what happens to one happens to all'],
  lead: ['the client is led to the server after its name, when it connects next'],
  sever: ['nothing gets through between the server and those after its name'],
  view: ['the client was given the nodes after its name, and no others'], clone: ['these clients draw the same random numbers'],
};

// wordOf says on a lane what a fault does to it, and of links: to which.
function wordOf(f, lane) {
  const node = lanes[lane].kind === 'node';
  const others = new Set(f.parts.filter(p => p.client >= 0 && (node ? nodeLane(p.node) : clientLane(p.client)) === lane)
    .map(p => node ? clientName(p.client) : nodeName(p.node)));
  if (f.shade !== 'link') return f.word;
  return f.verb + ' ' + (others.size === (node ? run.clients : run.nodes) ? 'all' : [...others].join(' '));
}

const shades = []; // of lanes
for (const f of faults) {
  f.from = f.at;
  f.until = f.parts.reduce((t, p) => Math.max(t, p.until), f.at);
  [, f.shade = 'other', f.word = f.verb] = verbs[f.verb] || [];
  const until = new Map();
  const wide = new Set(f.parts.map(p => p.client)).size === run.clients;
  for (const p of f.parts) {
    // A fault of all clients' links to a node is the node's.
    if (p.client >= 0 && !(p.node >= 0 && wide)) until.set(clientLane(p.client), Math.max(p.until, until.get(clientLane(p.client)) || 0));
    if (p.node >= 0) until.set(nodeLane(p.node), Math.max(p.until, until.get(nodeLane(p.node)) || 0));
  }
  for (const [lane, t] of until) shades.push({ entry: f.entry, lane, from: f.at, until: t, shade: f.shade, word: wordOf(f, lane) });
}

// What may be seen in a span of time is found by the latest end so far.
for (const list of [bars, messages, dots, shades, faults]) {
  list.sort((a, b) => a.from - b.from);
  let latest = -Infinity;
  for (const x of list) x.latest = latest = Math.max(latest, x.until);
}

// firstWhere returns the first index at which a condition holds, that holds for all after it.
function firstWhere(list, holds) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(list[middle])) high = middle; else low = middle + 1;
  }
  return low;
}

function within(list, from, to, each) {
  for (let i = firstWhere(list, x => x.latest >= from); i < list.length && list[i].from <= to; i++) {
    if (list[i].until >= from) each(list[i]);
  }
}

const isNotable = e => ['fault', 'fault end', 'belief', 'belief end', 'calm', 'violation'].includes(e.kind) ||
  e.kind === 'access' && e.text.includes('refused');
const notable = entries.map((e, i) => i).filter(i => isNotable(entries[i]));
const worst = violations.find(v => v.worst);
const violationEntry = worst ? entries.findIndex(e => e.kind === 'violation' && e.at === worst.at && e.text === worst.invariant + ': ' + worst.what) : -1;
const violated = violationEntry >= 0;

// The locks that the violation is about: of each client that it names the latest one, and
// if it names but one client, the one that somebody else was granted next.
const conflict = worst ? locksOf(worst) : [];
function locksOf(v) {
  const named = names.filter(n => v.what.includes(`"${n}"`));
  const held = bars.filter(b => b.whole && named.includes(b.name) && b.from <= v.at);
  const latest = list => list.reduce((a, b) => a && a.from > b.from ? a : b, undefined);
  const clients = new Set((v.what.match(/\bc\d+\b/g) || []).map(c => c.slice(1) - 1));
  const list = [...clients].map(c => latest(held.filter(b => b.clients[0] === c))).filter(Boolean);
  if (list.length === 1) list.push(latest(held.filter(b => b.clients[0] !== list[0].clients[0] && b.from > list[0].from)));
  return list.filter(Boolean).sort((a, b) => a.from - b.from);
}

const kept = { empty: ', and will come back with nothing', second: ', and will come back without the last second', durable: ', and will come back with all it had' };
const lack = { disk: ' has no disk left, and refuses all writes', memory: ' has no memory left, and refuses writes that need some' };
const copied = { empty: ': it has nothing any more', second: ': it lacks its own last second', durable: ': it has what it had' };

// brokenWords says which invariant a violation breaks.
const brokenWords = v => v.name ? v.name[0].toUpperCase() + v.name.slice(1) + ' is broken' : 'An invariant is broken';

// inWords says what an entry means.
function inWords(e) {
  const c = clientName(e.client), n = nodeName(e.node);
  const what = e.text === 'hello' ? 'wish to connect' : '“' + e.text + '”';
  switch (e.kind) {
    case 'send':
      return (e.to_client
        ? (e.text === 'hello' ? `${n} answers ${c}'s wish to connect.` : `${n} answers ${c}: ${e.text}.`)
        : (e.text === 'hello' ? `${c} connects to ${n}.` : `${c} sends ${what} to ${n}.`)) + ` It arrives at ${ms(e.until)} ms.`;
    case 'lost':
      return e.to_client ? `The answer of ${n} to ${c}, ${what}, is lost.` : `${c}'s ${what} to ${n} is lost.`;
    case 'held':
      return e.to_client ? `The answer of ${n} to ${c}, ${what}, is held back on its way.` : `${c}'s ${what} to ${n} is held back on its way.`;
    case 'released':
      return `What was held back between ${c} and ${n}, ${what}, goes on.`;
    case 'execute': {
      const [command, answer] = cut(e.text, ': ');
      return `${n} executes “${command}” for ${c}${answer ? ': ' + answer : ''}.`;
    }
    case 'key':
      if (!(e.until > e.at)) return `${n} has no key of ${e.name}.`;
      return `${n} has the key of ${e.name}, for ${[e.owner, ...(e.more || [])].map(ownerName).join(' and ')}${e.mode ? ' to ' + e.mode : ''}, until ${ms(e.until)} ms.`;
    case 'reply': {
      const [command, answer] = cut(e.text, ': ');
      return `${c} learns what came of “${command}” on ${n}: ${answer}.`;
    }
    case 'fault': {
      const [verb] = cut(e.text, ' ');
      const words = e.text.split(' ');
      let mode = '';
      if (verb === 'crash') mode = kept[words.find(w => w in kept) || 'durable'];
      if (verb === 'full') mode = lack[words[2]];
      if (verb === 'demote') mode = copied[words[2]] || `: it has what ${words[2]} has`;
      return `Fault: ${e.text}. That is, ${(verbs[verb] || [verb])[0]}${mode}.`;
    }
    case 'fault end':
      return `End of the fault: ${e.text}.`;
    case 'step':
      return `${c} begins a step of the plan: ${e.text}.`;
    case 'result':
      return `The step of ${c} is done. ${e.text}.`;
    case 'engine':
      return `The engine of ${c} reports${e.node >= 0 ? ' about ' + n : ''}: ${e.text}.`;
    case 'belief':
      return `${c} ${e.mode ? 'may now ' + e.mode : 'now holds'} ${e.name}.`;
    case 'joint':
      return `${c} ${e.text}: for as long as it has both.`;
    case 'belief end':
      return `${c} ${e.mode ? 'may no longer ' + e.mode : 'no longer holds'} ${e.name}.`;
    case 'access':
      return e.text.includes('refused')
        ? `The resource ${e.name} refuses to let ${c} ${e.text.startsWith('writes') ? 'write' : 'read'}: its token is old.`
        : `${c} ${e.text} the resource ${e.name}.`;
    case 'calm':
      return `The part with faults is over. From here on every client that wants the lock must get it.`;
    case 'healed':
      return `${e.text}.`;
    case 'violation': {
      const v = violations.find(v => v.at === e.at && e.text === v.invariant + ': ' + v.what);
      return `${v ? brokenWords(v) : 'An invariant is broken'}. ${v ? v.what : e.text}.`;
    }
  }
  return e.text;
}

function cut(text, separator) {
  const i = text.indexOf(separator);
  return i < 0 ? [text, ''] : [text.slice(0, i), text.slice(i + separator.length)];
}

// stateAt says who holds what at a time.
function stateAt(t) {
  const list = [], at = b => b.from <= t && (t < b.until || b.until === end); // nothing ends the latter
  for (const name of names) {
    const holders = bars.filter(b => b.whole && b.name === name && at(b));
    const who = [...new Set(holders.map(b => clientName(b.clients[0])))].sort(), reads = holders.every(b => b.mode === 'read');
    if (who.length) list.push({ bad: who.length > 1 && !reads, client: holders[0].clients[0], text: `${who.join(' and ')} ${reads ? 'may read' : who.length > 1 ? 'hold' : 'holds'} ${name}` });
    const keys = new Map();
    for (const b of bars) if (b.key && b.name === name && at(b)) keys.set(b.clients[0], [...keys.get(b.clients[0]) || [], lanes[b.lane].label]);
    for (const [client, nodes] of keys) list.push({ client, text: `${clientName(client)}'s key of ${name} is on ${nodes.sort().join(' ')}` });
  }
  return list.length ? list : [{ client: -1, text: 'nobody holds anything' }];
}
