// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0
'use strict';

// The table of servers. Only the rows in sight are in the document; they are
// used again for others as the page is scrolled.

const svgNS = 'http://www.w3.org/2000/svg';

function element(tag, className, parent) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (parent) parent.append(e);
  return e;
}

function chart(parent) {
  const svg = document.createElementNS(svgNS, 'svg');
  svg.setAttribute('viewBox', '0 0 100 30');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  svg.parts = ['area', 'req', 'fail'].map(name => {
    const p = document.createElementNS(svgNS, 'path');
    p.setAttribute('class', name);
    svg.append(p);
    return p;
  });
  parent.append(svg);
  return svg;
}

function draw(svg, model, history) {
  const top = Math.max(highest(model, history.requests), highest(model, history.failures), 1);
  svg.parts[0].setAttribute('d', path(model, history.requests, top, true));
  svg.parts[1].setAttribute('d', path(model, history.requests, top));
  svg.parts[2].setAttribute('d', highest(model, history.failures) > 0 ? path(model, history.failures, top) : '');
}

const byNumber = (f, fallback = -1) => row => { const v = f(row); return isNaN(v) || v === undefined ? fallback : v; };
const columns = [
  { name: 'state', key: row => row.rank, up: true },
  { name: 'server', key: row => row.name, up: true },
  { name: 'weight', num: true, key: byNumber(row => row.s.weight) },
  { name: 'active', num: true, key: byNumber(row => row.s.state.conns) },
  { name: 'req/s', num: true, key: byNumber(row => row.requests) },
  { name: 'failures/s', num: true, key: byNumber(row => row.failures) },
  { name: 'median', num: true, key: byNumber(row => (row.s.state.response_time || {}).p50) },
  { name: '99 %', num: true, key: byNumber(row => (row.s.state.response_time || {}).p99) },
  { name: 'bytes/s', num: true, key: byNumber(row => row.bytes) },
  { name: '5 min', key: byNumber(row => row.requests) },
  { name: 'last error', key: byNumber(row => row.s.state.last_failure ? Date.parse(row.s.state.last_failure) : -1) },
];

class Table {
  constructor(model, act, open) {
    this.model = model;
    this.act = act;
    this.open = open;
    this.rows = document.getElementById('rows');
    this.pool = [];
    this.list = [];
    this.sort = 0;
    this.reverse = false;
    const head = document.getElementById('head'), pick = document.getElementById('sort');
    columns.forEach((c, i) => {
      const cell = element('div', c.num ? 'num' : '', head);
      cell.setAttribute('role', 'columnheader');
      const b = element('button', '', cell);
      b.addEventListener('click', () => this.sortBy(i, this.sort === i ? !this.reverse : !c.up));
      c.head = b;
      pick.add(new Option(c.name, i));
    });
    pick.addEventListener('change', () => this.sortBy(+pick.value, !columns[+pick.value].up));
    addEventListener('scroll', () => this.later(), { passive: true });
    addEventListener('resize', () => this.later());
    this.sortBy(0, false);
  }

  sortBy(i, reverse) {
    this.sort = i;
    this.reverse = reverse;
    document.getElementById('sort').value = i;
    columns.forEach((c, j) => {
      c.head.textContent = c.name + (j === i ? (reverse ? ' ↓' : ' ↑') : '');
      c.head.parentNode.setAttribute('aria-sort', j !== i ? 'none' : reverse ? 'descending' : 'ascending');
    });
    this.show(this.list);
  }

  // show sorts and draws these rows.
  show(list) {
    const key = columns[this.sort].key, sign = this.reverse ? -1 : 1;
    const keyed = list.map(row => ({ row, k: key(row) }));
    keyed.sort((a, b) => sign * (a.k < b.k ? -1 : a.k > b.k ? 1 : 0) ||
      (a.row.group.name < b.row.group.name ? -1 : a.row.group.name > b.row.group.name ? 1 : 0));
    this.list = keyed.map(x => x.row);
    this.draw();
  }

  later() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  draw() {
    const height = parseInt(getComputedStyle(document.documentElement).getPropertyValue('--row'), 10) || 44;
    this.rows.style.height = this.list.length * height + 'px';
    const top = this.rows.getBoundingClientRect().top;
    const from = Math.max(0, Math.floor(-top / height) - 4);
    const to = Math.min(this.list.length, Math.ceil((innerHeight - top) / height) + 4);
    const count = Math.max(0, to - from);
    while (this.pool.length < count) this.pool.push(this.make());
    this.pool.forEach((cells, i) => {
      cells.root.hidden = i >= count;
    });
    // A row keeps its place in the pool while it is in sight, so that a button
    // does not change under a finger.
    for (let i = from; i < to; i++) {
      const cells = this.pool[i % count];
      cells.root.style.transform = 'translateY(' + i * height + 'px)';
      cells.root.setAttribute('aria-rowindex', i + 2);
      this.fill(cells, this.list[i]);
    }
  }

  make() {
    const root = element('div', 'row', this.rows), c = { root };
    root.setAttribute('role', 'row');
    const cell = (name, className, short) => {
      c[name] = element('div', className, root);
      c[name].setAttribute('role', 'cell');
      if (short) c[name].dataset.short = short;
    };
    cell('state', 'stat state');
    cell('who', 'who');
    c.name = element('button', 'name', c.who);
    c.name.addEventListener('click', () => this.open(c.row.id));
    c.where = element('small', '', c.who);
    cell('weight', 'num', 'w');
    cell('conns', 'num', 'active');
    cell('requests', 'num', 'req/s');
    cell('failures', 'num', 'fail/s');
    cell('p50', 'num wide');
    cell('p99', 'num', '99 %');
    cell('bytes', 'num wide');
    cell('chart', 'chart');
    c.svg = chart(c.chart);
    cell('err', 'err');
    cell('acts', 'acts');
    c.drain = element('button', 'act drain', c.acts);
    c.set = element('button', 'act set', c.acts);
    c.set.textContent = 'Weight';
    c.drain.addEventListener('click', () => this.act(c.row, c.drain.textContent.toLowerCase()));
    c.set.addEventListener('click', () => this.act(c.row, 'weight'));
    return c;
  }

  fill(c, row) {
    const s = row.s, live = s.state, now = this.model.last, put = (e, text) => { if (e.textContent !== text) e.textContent = text; };
    c.row = row;
    const recent = row.changed && now - row.changed < 60e3;
    const className = 'row s-' + row.state + (recent ? ' new' : '') + (recent && now - row.changed < 2500 ? ' flash' : '');
    if (c.root.className !== className) c.root.className = className;
    c.root.dataset.server = row.name;
    c.root.title = recent ? 'changed ' + ago(now - row.changed) : '';
    c.state.className = 'stat state ' + row.state;
    let state = (marks[row.state] || '?') + ' ' + row.state;
    const left = live.unhealthy_for || live.closes_in;
    if (left) state += ' ' + left.replace(/\.\d+s$/, 's').replace(/^\d+ms$/, '<1s');
    if (row.state === 'starting') state += ' ' + live.slow_start_percent + ' %';
    put(c.state, state);
    put(c.name, s.id);
    put(c.where, row.group.name + (s.backup ? ' · backup' : '') + (s.address !== s.id ? ' · ' + s.address : ''));
    c.who.title = s.id + ' – ' + s.address;
    put(c.weight, live.effective_weight !== s.weight && live.state !== 'unresolved' ? live.effective_weight + '/' + s.weight : '' + s.weight);
    put(c.conns, live.conns + (s.max_conns ? '/' + s.max_conns : ''));
    put(c.requests, number(row.requests));
    put(c.failures, number(row.failures));
    c.failures.className = 'num' + (row.failures > 0 ? ' hot' : '');
    const t = live.response_time || {};
    put(c.p50, time(t.p50));
    put(c.p99, time(t.p99));
    put(c.bytes, bytes(row.bytes));
    draw(c.svg, this.model, row.history);
    const since = t => ago(Math.max(0, this.model.server - Date.parse(t)));
    const check = (live.checks || [])[0];
    put(c.err, check ? since(check.since) + ': check ' + check.check + ': ' + check.reason
      : live.last_error ? since(live.last_failure) + ': ' + live.last_error : '');
    c.err.title = (live.checks || []).map(x => 'check ' + x.check + ': ' + x.reason + '\n').join('') +
      (live.down_since ? 'out since ' + live.down_since + '\n' : '') + (live.last_error || '');
    this.buttons(c, row, put);
  }

  buttons(c, row, put) {
    const may = this.model.token && !row.group.static && row.state !== 'removed';
    c.acts.hidden = !this.model.token;
    c.drain.hidden = c.set.hidden = !may;
    if (!may) return;
    put(c.drain, row.s.drain || row.s.down ? 'Enable' : 'Drain');
    const all = row.s.server ? ' (all addresses of ' + row.s.server + ')' : '';
    c.drain.title = (row.s.drain || row.s.down ? 'send traffic to ' : 'send no new traffic to ') + (row.s.server || row.s.id) + all;
    c.set.title = 'change the weight of ' + (row.s.server || row.s.id) + all;
  }
}
