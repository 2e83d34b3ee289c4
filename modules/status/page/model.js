// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0
'use strict';

// What was polled and what follows from it: rates, histories, changes.

const span = 300e3; // of the charts, in ms
const points = 300;

// worst first
const order = ['unhealthy', 'unresolved', 'full', 'draining', 'starting', 'down', 'removed', 'up'];
const marks = { up: '●', unhealthy: '✖', unresolved: '?', full: '■', draining: '▼', starting: '▲', down: '○', removed: '–' };

class History {
  constructor() {
    this.requests = new Float32Array(points).fill(NaN);
    this.failures = new Float32Array(points).fill(NaN);
  }
  put(tick, requests, failures) {
    this.requests[tick % points] = requests;
    this.failures[tick % points] = failures;
  }
}

class Model {
  constructor() {
    this.tick = 0;
    this.times = new Float64Array(points);
    this.servers = new Map();
    this.groups = new Map();
    this.log = [];
    this.last = 0;
    this.token = '';
  }

  // take notes an answer. now is the browser's clock, for only differences count.
  take(status, now) {
    const seconds = this.last ? Math.max((now - this.last) / 1000, 0.001) : NaN;
    const first = !this.last;
    this.tick++;
    this.times[this.tick % points] = now;
    this.last = now;
    if (first) this.first = now;
    this.token = status.token || '';
    const seen = new Set(), groups = new Set();
    for (const g of status.groups) {
      const key = g.name;
      groups.add(key);
      this.takeGroup(key, g, seconds, now, seen, first);
    }
    for (const [key, s] of this.servers) if (!seen.has(key)) {
      this.note(now, s, s.state, 'gone');
      this.servers.delete(key);
    }
    for (const key of this.groups.keys()) if (!groups.has(key)) this.groups.delete(key);
  }

  takeGroup(key, g, seconds, now, seen, first) {
    let group = this.groups.get(key);
    if (!group) this.groups.set(key, group = { key, history: new History() });
    Object.assign(group, {
      name: g.name, static: g.static, panic: g.panic, queue: g.queue || 0, limit: g.queue_limit || 0,
      count: 0, states: {}, conns: 0, requests: 0, failures: 0, retries: 0, bytes: 0, stream: false, p50: 0, p99: 0, usable: 0,
    });
    let weight = 0;
    for (const s of g.servers) {
      const id = key + '\n' + s.id + (s.state.state === 'removed' ? '\nremoved' : '');
      seen.add(id);
      const row = this.takeServer(id, group, s, seconds, now, first);
      group.count++;
      group.states[row.state] = (group.states[row.state] || 0) + 1;
      group.conns += s.state.conns;
      group.requests += row.requests || 0;
      group.failures += row.failures || 0;
      group.retries += row.retries || 0;
      group.bytes += row.bytes || 0;
      group.stream = group.stream || s.state.sessions > 0;
      if (row.state === 'up' || row.state === 'starting') group.usable++;
      const t = s.state.response_time;
      if (t) {
        group.p50 += t.p50 * t.count; // the mean of the servers' medians
        group.p99 = Math.max(group.p99, t.p99);
        weight += t.count;
      }
    }
    if (weight) group.p50 /= weight;
    group.requests -= group.retries;
    group.history.put(this.tick, isNaN(seconds) ? NaN : group.requests, isNaN(seconds) ? NaN : group.failures);
  }

  takeServer(id, group, s, seconds, now, first) {
    let row = this.servers.get(id);
    const live = s.state;
    let state = live.state;
    if (state === 'up' && s.slow_start && live.slow_start_percent < 100) state = 'starting';
    if (!row) {
      this.servers.set(id, row = { id, history: new History(), changed: first ? 0 : now, before: null });
      if (!first) this.note(now, { group, name: s.id }, 'new', state, live);
    } else if (row.state !== state) {
      this.note(now, row, row.state, state, live);
      row.changed = now;
    } else if (row.s.weight !== s.weight) {
      this.note(now, row, 'weight ' + row.s.weight, 'weight ' + s.weight);
      row.changed = now;
    }
    const was = row.before;
    const rate = name => was && live[name] >= was[name] ? (live[name] - was[name]) / seconds : NaN;
    row.requests = rate('picks');
    row.failures = rate('failures');
    row.retries = was ? Math.max(0, (live.retries || 0) - (was.retries || 0)) / seconds : 0;
    row.bytes = rate('bytes_sent') + rate('bytes_received');
    row.history.put(this.tick, row.requests, row.failures);
    row.before = live;
    row.group = group; row.s = s; row.state = state; row.name = s.id;
    row.rank = order.indexOf(state) < 0 ? 1 : order.indexOf(state);
    row.text = (group.name + ' ' + s.id + ' ' + s.address + ' ' + state + ' ' + (live.last_error || '')).toLowerCase();
    return row;
  }

  note(now, row, from, to, live) {
    const check = to === 'unhealthy' && live && (live.checks || [])[0];
    const why = check ? ': ' + check.reason : to === 'unhealthy' && live && live.last_error ? ': ' + live.last_error : '';
    this.log.unshift({ at: now, where: row.group.name + ' / ' + row.name, what: from + ' → ' + to + why, to });
    if (this.log.length > 200) this.log.length = 200;
  }
}

// path draws a history over the last minutes into a box of 100 by 30.
function path(model, values, top, area) {
  let d = '', pen = false, x = 0, begin = 0;
  const now = model.last, width = Math.max(60e3, Math.min(span, now - model.first));
  for (let i = Math.max(1, model.tick - points + 1); i <= model.tick; i++) {
    const v = values[i % points], t = model.times[i % points];
    if (isNaN(v) || now - t > width) { pen = false; continue; }
    x = 100 - (now - t) / width * 100;
    if (!d) begin = x;
    d += (pen ? 'L' : 'M') + x.toFixed(2) + ' ' + (29 - 28 * Math.min(1, v / top)).toFixed(2);
    pen = true;
  }
  return d && area ? d + 'L' + x.toFixed(2) + ' 30L' + begin.toFixed(2) + ' 30Z' : d;
}

function highest(model, values) {
  let top = 0;
  for (let i = Math.max(1, model.tick - points + 1); i <= model.tick; i++) {
    const v = values[i % points];
    if (v > top && model.last - model.times[i % points] <= span) top = v;
  }
  return top;
}

const number = v => isNaN(v) ? '–' : v === 0 ? '0' : v < 10 ? v.toFixed(1) : v < 10000 ? Math.round(v).toString() : (v / 1000).toFixed(0) + 'k';
const time = s => !s ? '–' : s < 0.001 ? (s * 1e6).toFixed(0) + ' µs' : s < 0.1 ? (s * 1e3).toFixed(1) + ' ms' : s < 1 ? (s * 1e3).toFixed(0) + ' ms' : s.toFixed(s < 10 ? 1 : 0) + ' s';
const bytes = v => isNaN(v) ? '–' : v < 1000 ? v.toFixed(0) + ' B' : v < 1e6 ? (v / 1e3).toFixed(0) + ' kB' : v < 1e9 ? (v / 1e6).toFixed(1) + ' MB' : (v / 1e9).toFixed(1) + ' GB';
const ago = ms => ms < 1000 ? 'now' : ms < 60e3 ? Math.floor(ms / 1000) + ' s ago' : ms < 3600e3 ? Math.floor(ms / 60e3) + ' min ago' : ms < 86400e3 ? Math.floor(ms / 3600e3) + ' h ago' : Math.floor(ms / 86400e3) + ' d ago';
