// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0
'use strict';

// All that is known of one server, in a dialog that follows it.

const list = o => Object.entries(o || {}).map(([k, v]) => k + ' ' + v).join(', ');
const times = t => t ? 'mean ' + time(t.mean) + ', median ' + time(t.p50) + ', 90 % ' + time(t.p90) + ', 99 % ' + time(t.p99) + ' of ' + t.count + ' in the last minute' : '';
const volume = v => v < 1000 ? v + ' B' : bytes(v) + ' (' + v + ')';

// facts are what is shown, by the fields of the JSON that it comes from. since
// says how long ago a time was.
const facts = [
  ['state', 'state', (s, live, row) => (marks[row.state] || '?') + ' ' + row.state + (live.state !== row.state ? ' (' + live.state + ')' : '')],
  ['unhealthy_for', 'tried again in', (s, live) => live.unhealthy_for],
  ['closes_in', 'closes what is open in', (s, live) => live.closes_in],
  ['down_since', 'out since', (s, live, row, since) => live.down_since && since(live.down_since)],
  ['checks', 'failed checks', (s, live, row, since) => (live.checks || []).map(c => c.check + ': ' + c.reason + ' (' + since(c.since) + ')').join('; ')],
  ['slow_start_percent', 'slow start', (s, live) => s.slow_start && live.slow_start_percent + ' % of its weight'],
  ['conns', 'active', (s, live) => live.conns],
  ['picks', 'tries', (s, live) => live.picks],
  ['retries', 'after another server', (s, live) => live.retries || 0],
  ['sessions', 'stream sessions', (s, live) => live.sessions || 0],
  ['selected', 'last chosen', (s, live, row, since) => live.selected && since(live.selected)],
  ['failures', 'failures', (s, live) => live.failures],
  ['failures_by_reason', 'failures by reason', (s, live) => list(live.failures_by_reason)],
  ['fails', 'counted failures', (s, live) => live.fails + ' of ' + (s.max_fails || 'any number')],
  ['last_error', 'last error', (s, live) => live.last_error],
  ['last_failure', 'last failure', (s, live, row, since) => live.last_failure && since(live.last_failure)],
  ['responses', 'responses', (s, live) => list(live.responses)],
  ['broken_responses', 'broken off', (s, live) => live.broken_responses || 0],
  ['header_time', 'time to the header', (s, live) => times(live.header_time)],
  ['response_time', 'time to the end', (s, live) => times(live.response_time)],
  ['bytes_sent', 'bytes sent', (s, live) => volume(live.bytes_sent || 0)],
  ['bytes_received', 'bytes received', (s, live) => volume(live.bytes_received || 0)],
  ['keepalive', 'kept connections', (s, live) => list(live.keepalive)],
  ['queue', 'queue of the group', (s, live, row) => row.group.limit ? row.group.queue + ' of ' + row.group.limit : 'no queue'],
  ['effective_weight', 'effective weight', (s, live) => live.effective_weight],
  ['current_weight', 'current weight', (s, live) => live.current_weight],
  ['weight', 'weight', s => s.weight],
  ['address', 'address', s => s.address],
  ['server', 'an address of', s => s.server],
  ['max_conns', 'max_conns', s => s.max_conns || 'no limit'],
  ['max_fails', 'max_fails', s => s.max_fails],
  ['fail_timeout', 'fail_timeout', s => s.fail_timeout],
  ['slow_start', 'slow_start', s => s.slow_start],
  ['drain_timeout', 'drain_timeout', s => s.drain_timeout],
  ['route', 'route', s => s.route],
  ['probe', 'probe', s => s.probe],
  ['service', 'service', s => s.service],
  ['resolve', 'resolve', s => s.resolve && 'on'],
  ['backup', 'backup', s => s.backup && 'on'],
  ['down', 'down', s => s.down && 'on'],
  ['drain', 'drain', s => s.drain && 'on'],
];

class Details {
  constructor(model) {
    this.model = model;
    this.root = document.getElementById('details');
    this.svg = chart(document.getElementById('detailschart'));
    const dl = document.getElementById('facts');
    this.values = facts.map(([field, label]) => {
      const pair = element('div', '', dl);
      element('dt', '', pair).textContent = label;
      const dd = element('dd', '', pair);
      dd.dataset.field = field;
      return dd;
    });
    // A click beside the dialog closes it.
    this.root.addEventListener('click', e => { if (e.target === this.root) this.root.close(); });
  }

  open(id) {
    this.id = id;
    this.show();
    this.root.showModal();
  }

  // show draws the server as it is now; one that is gone stays as it was.
  show() {
    const row = this.model.servers.get(this.id);
    document.getElementById('gone').hidden = !!row;
    if (!row) return;
    const s = row.s, live = s.state, since = t => ago(Math.max(0, this.model.server - Date.parse(t)));
    document.getElementById('detailstitle').textContent = row.group.name + ' / ' + row.name;
    draw(this.svg, this.model, row.history);
    facts.forEach(([, , value], i) => {
      const v = value(s, live, row, since), text = v === undefined || v === '' || v === false ? '–' : '' + v;
      if (this.values[i].textContent !== text) this.values[i].textContent = text;
      this.values[i].parentNode.className = text === '–' ? 'none' : '';
    });
  }
}
