// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0
'use strict';

const $ = id => document.getElementById(id);
const model = new Model();
const details = new Details(model);
const table = new Table(model, act, id => details.open(id));
const cards = new Map();
const most = 60; // groups that are drawn
let group = '', state = '', timer = 0, busy = false, missed = 0;

async function poll() {
  clearTimeout(timer);
  if (busy) return;
  busy = true;
  try {
    const answer = await fetch(location.pathname, { headers: { Accept: 'application/json' }, cache: 'no-store', signal: AbortSignal.timeout(10e3) });
    if (!answer.ok) throw new Error('status ' + answer.status);
    const status = await answer.json();
    model.server = Date.parse(status.time);
    model.take(status, performance.now());
    missed = 0;
    $('stale').hidden = true;
    $('clock').textContent = new Date(status.time).toLocaleTimeString();
    show();
  } catch (error) {
    missed++;
    $('stale').hidden = false;
    $('stale').textContent = 'No answer from Caddy (' + error.message + '). What you see is as of ' + ($('clock').textContent || 'never') + '.';
  }
  busy = false;
  next();
}

function next() {
  clearTimeout(timer);
  const every = +$('interval').value;
  if (every && !document.hidden) timer = setTimeout(poll, missed ? Math.min(10e3, every * 2 ** Math.min(missed, 4)) : every);
}

function show() {
  document.body.classList.toggle('write', !!model.token);
  verdict();
  groups();
  servers();
  log();
  if (details.root.open) details.show();
}

// verdict says in one line whether there is anything to do.
function verdict() {
  const all = [...model.servers.values()], bad = all.filter(r => r.state === 'unhealthy' || r.state === 'unresolved').length;
  const empty = [...model.groups.values()].filter(g => !g.usable && g.count), v = $('verdict');
  let text = '● all ' + all.length + ' servers of ' + model.groups.size + ' groups are fine', kind = 'good';
  if (!all.length) [text, kind] = ['no groups', ''];
  else if (empty.length) [text, kind] = ['✖ no server for ' + empty.slice(0, 3).map(g => g.name).join(', ') + (empty.length > 3 ? ' and ' + (empty.length - 3) + ' more' : ''), 'bad'];
  else if (bad) [text, kind] = ['▲ ' + bad + ' of ' + all.length + ' servers cannot be used', 'warn'];
  v.textContent = text;
  v.className = kind;
  document.title = (kind === 'bad' ? '✖ ' : kind === 'warn' ? '▲ ' : '') + 'Upstreams';
}

function groups() {
  const trouble = g => !g.usable ? 0 : g.states.unhealthy || g.states.unresolved || g.panic || g.queue ? 1 : 2;
  const list = [...model.groups.values()].sort((a, b) => trouble(a) - trouble(b) || (a.name < b.name ? -1 : 1)).slice(0, most);
  const keep = new Set(list.map(g => g.key));
  for (const [key, c] of cards) if (!keep.has(key)) { c.root.remove(); cards.delete(key); }
  list.forEach((g, i) => {
    const c = cards.get(g.key) || card(g.key);
    if ($('groups').children[i] !== c.root) $('groups').insertBefore(c.root, $('groups').children[i] || null);
    c.root.className = 'group ' + ['bad', 'warn', 'good'][trouble(g)] + (group === g.key ? ' on' : '');
    c.root.setAttribute('aria-pressed', group === g.key);
    c.name.firstChild.textContent = g.name;
    c.kind.textContent = (g.static ? ' list of a handler' : '') + (g.stream ? ' stream' : '') + (g.panic ? ' PANIC: health is ignored' : '');
    c.states.textContent = g.usable + ' of ' + g.count + ' up';
    c.states.className = 'states ' + ['unhealthy', 'full', 'up'][trouble(g)];
    draw(c.svg, model, g.history);
    c.facts.replaceChildren(...fact(number(g.requests), g.stream ? 'sessions/s' : 'req/s'),
      ...fact(number(g.failures), 'failures/s', g.failures > 0), ...fact(g.conns, 'active'),
      ...(g.retries > 0 ? fact(number(g.retries), 'retries/s') : []), ...(g.limit ? fact(g.queue + ' / ' + g.limit, 'queued', g.queue > 0) : []),
      ...fact(time(g.p50), 'median'), ...fact(time(g.p99), '99 %'));
  });
}

function card(key) {
  const root = element('button', 'group', $('groups')), c = { root };
  root.type = 'button';
  c.name = element('span', 'name', root);
  c.name.append(document.createTextNode(''));
  c.kind = element('span', 'kind', c.name);
  c.states = element('span', 'states', root);
  c.svg = chart(root);
  c.facts = element('span', 'facts', root);
  root.addEventListener('click', () => { group = group === key ? '' : key; show(); });
  cards.set(key, c);
  return c;
}

function fact(value, name, hot) {
  const e = element('span', hot ? 'hot' : '');
  element('b', '', e).textContent = value;
  e.append(' ' + name);
  return [e];
}

function servers() {
  const words = $('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
  const inGroup = [...model.servers.values()].filter(r => (!group || r.group.key === group) && words.every(w => r.text.includes(w)));
  const list = state ? inGroup.filter(r => r.state === state) : inGroup;
  chips(inGroup);
  table.show(list);
  $('shown').textContent = list.length === model.servers.size ? list.length + ' servers' : list.length + ' of ' + model.servers.size + ' servers';
  $('table').hidden = !list.length;
  $('empty').hidden = !!list.length;
  $('empty').textContent = model.servers.size ? 'No server matches.' : 'No upstream group is configured.';
}

function chips(list) {
  const counts = {};
  for (const r of list) counts[r.state] = (counts[r.state] || 0) + 1;
  if (state && !counts[state]) counts[state] = 0;
  const names = Object.keys(counts).sort((a, b) => order.indexOf(a) - order.indexOf(b));
  const have = [...$('chips').children];
  names.forEach((name, i) => {
    const b = have[i] || element('button', '', $('chips'));
    if (!have[i]) b.addEventListener('click', () => { state = state === b.dataset.state ? '' : b.dataset.state; servers(); });
    b.dataset.state = name;
    b.className = 'chip ' + name + (state === name ? ' on' : '');
    b.setAttribute('aria-pressed', state === name);
    b.textContent = (marks[name] || '?') + ' ' + counts[name] + ' ' + name;
  });
  have.slice(names.length).forEach(b => b.remove());
}

function log() {
  $('logcount').textContent = model.log.length ? '(' + model.log.length + ', last ' + ago(model.last - model.log[0].at) + ': ' + model.log[0].where + ' ' + model.log[0].what + ')' : '(nothing yet)';
  if (!$('log').open) return;
  $('loglist').replaceChildren(...model.log.slice(0, 100).map(entry => {
    const li = element('li'), t = element('time', '', li);
    t.textContent = new Date(model.server - (model.last - entry.at)).toLocaleTimeString();
    li.append(entry.where + ' ');
    element('span', entry.to, li).textContent = entry.what;
    return li;
  }));
}

// act drains, enables or reweights the server of a row.
async function act(row, what) {
  const server = row.s.server || row.s.id;
  if (what === 'weight') {
    $('dialogtitle').textContent = row.group.name + ' / ' + server;
    $('weight').value = row.s.weight;
    $('dialog').returnValue = '';
    $('dialog').showModal();
    await new Promise(done => $('dialog').addEventListener('close', done, { once: true }));
    if ($('dialog').returnValue !== 'ok') return;
    return change(row, server, { weight: +$('weight').value }, { weight: row.s.weight });
  }
  const before = { drain: row.s.drain || null, down: row.s.down || null };
  return change(row, server, what === 'drain' ? { drain: true } : { drain: null, down: null }, before);
}

async function change(row, server, fields, undo) {
  const answer = await fetch(location.pathname, {
    method: 'POST', headers: { 'Content-Type': 'application/json', 'X-Upstream-Status-Token': model.token },
    body: JSON.stringify({ group: row.group.name, server, fields }),
  }).catch(error => ({ ok: false, json: async () => ({ error: error.message }) }));
  const toast = $('toast');
  toast.className = answer.ok ? '' : 'bad';
  toast.textContent = answer.ok ? row.group.name + ' / ' + server + ': ' + Object.entries(fields).map(([k, v]) => k + ' ' + (v === null ? 'off' : v === true ? 'on' : v)).join(', ')
    : 'Not changed: ' + (await answer.json().catch(() => ({ error: 'status ' + answer.status }))).error;
  if (answer.ok && undo) {
    const b = element('button', '', toast);
    b.textContent = 'Undo';
    b.addEventListener('click', () => change(row, server, undo));
  }
  toast.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { toast.hidden = true; }, 8000);
  poll();
}

$('host').textContent = location.host;
$('filter').addEventListener('input', servers);
$('interval').addEventListener('change', () => +$('interval').value ? poll() : next());
$('log').addEventListener('toggle', log);
document.addEventListener('visibilitychange', () => document.hidden ? clearTimeout(timer) : poll());
document.addEventListener('keydown', e => {
  if (e.key === '/' && !/INPUT|SELECT/.test(document.activeElement.tagName)) { e.preventDefault(); $('filter').focus(); }
  if (e.key === 'Escape' && document.activeElement === $('filter')) { $('filter').value = ''; servers(); }
});
poll();
