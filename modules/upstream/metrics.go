// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-upstream/caddy-upstream/internal/peer"
)

// Metrics are read from the live state when they are asked for: they cost a
// request nothing that the state does not, a server that is gone has none, and
// a reload changes nothing. The registry is new with each configuration; all
// who use groups register the same collector, and the first one counts.

// registerMetrics makes the configuration's metrics endpoint show all groups.
func registerMetrics(ctx caddy.Context) error {
	registry := ctx.GetMetricsRegistry()
	if registry == nil {
		return nil
	}
	err := registry.Register(collector{})
	if _, there := errors.AsType[prometheus.AlreadyRegisteredError](err); there {
		return nil
	}
	return err
}

// collector reads all groups.
type collector struct{}

// The labels are words of the configuration; only the address of a server that
// is followed in DNS comes from there.
var (
	groupLabels  = []string{"group"}
	serverLabels = []string{"group", "server", "address"}
)

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// series is a metric of T with one value, as it is written below.
type series[T any] struct {
	name, help string
	kind       prometheus.ValueType
	value      func(*T) float64
}

type metric[T any] struct {
	series[T]
	desc *prometheus.Desc
}

// sight is a server as it is shown.
type sight struct {
	*peer.State
	now  time.Time
	kept *KeepaliveState // nil: none were
}

func (s *sight) up() float64 {
	switch stateName(*s.State, s.now) {
	case "up", "full":
		return 1
	}
	return 0
}

// failedChecks counts checks of one name as one: they ask different things.
func (s *sight) failedChecks() map[string]uint64 {
	out := map[string]uint64{}
	for _, c := range s.Checks {
		out[c.Check] = 1
	}
	return out
}

var ofGroups = named(groupLabels, []series[peer.Status]{
	{"requests_total", "Requests and stream sessions that were given a server.", counter, func(s *peer.Status) float64 { return float64(s.Requests) }},
	{"refused_total", "Times that a request or session found no server.", counter, func(s *peer.Status) float64 { return float64(s.Refused) }},
	{"retries_total", "Further tries of requests and sessions.", counter, func(s *peer.Status) float64 { return float64(s.Retries) }},
	{"queue", "Requests that wait for a server.", gauge, func(s *peer.Status) float64 { return float64(s.Waiting) }},
	{"servers", "Servers of the group.", gauge, func(s *peer.Status) float64 { return float64(s.Members) }},
	{"servers_up", "Servers that are neither down nor draining nor out.", gauge, func(s *peer.Status) float64 { return float64(s.Up) }},
})

var ofServers = named(serverLabels, []series[sight]{
	{"server_up", "1 if the server can be used, else 0. A full one can.", gauge, (*sight).up},
	{"server_active", "Requests and sessions in progress.", gauge, func(s *sight) float64 { return float64(s.Conns) }},
	{"server_weight", "The weight as configured.", gauge, func(s *sight) float64 { return float64(s.Server.Weight) }},
	{"server_effective_weight", "The weight that failures have left.", gauge, func(s *sight) float64 { return float64(s.EffectiveWeight) }},
	{"server_tries_total", "Tries at the server.", counter, func(s *sight) float64 { return float64(s.Picks) }},
	{"server_retries_total", "Tries that followed one at another server.", counter, func(s *sight) float64 { return float64(s.Retries) }},
	{"server_sent_bytes_total", "Bytes sent, counted at the end of a request or session.", counter, func(s *sight) float64 { return float64(s.Stats.Sent.Load()) }},
	{"server_received_bytes_total", "Bytes received, counted at the end of a request or session.", counter, func(s *sight) float64 { return float64(s.Stats.Received.Load()) }},
	{"server_broken_responses_total", "Responses that the server broke off after their header.", counter, func(s *sight) float64 { return float64(s.Stats.Broken.Load()) }},
	{"server_sessions_total", "Stream sessions that were connected.", counter, func(s *sight) float64 { return float64(s.Stats.Sessions.Load()) }},
})

// ofKept are of servers to which connections have been kept.
var ofKept = named(serverLabels, []series[sight]{
	{"server_idle_connections", "Connections that are kept.", gauge, func(s *sight) float64 { return float64(s.kept.Idle) }},
	{"server_connections_total", "Connections opened by upstream_keepalive.", counter, func(s *sight) float64 { return float64(s.kept.Created) }},
	{"server_reused_total", "Requests that found a kept connection.", counter, func(s *sight) float64 { return float64(s.kept.Reused) }},
})

// ofMany have a label more, for what happened.
var ofMany = []struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values func(*sight) map[string]uint64
}{
	{describe("server_failed_check", "1 for each active check that has the server out.", serverLabels, "check"), gauge, (*sight).failedChecks},
	{describe("server_failures_total", "Failed tries, by nginx's words.", serverLabels, "reason"), counter, func(s *sight) map[string]uint64 { return s.Reasons.Map() }},
	{describe("server_responses_total", "Responses by class.", serverLabels, "class"), counter, func(s *sight) map[string]uint64 { return classes(s.Stats) }},
}

var ofTimes = []struct {
	desc  *prometheus.Desc
	value func(*peer.Stats) *peer.Histogram
}{
	{describe("server_header_seconds", "Time to the response header, or to the first byte of a stream session.", serverLabels), func(s *peer.Stats) *peer.Histogram { return s.Header.Load() }},
	{describe("server_response_seconds", "Time to the end of the response or session.", serverLabels), func(s *peer.Stats) *peer.Histogram { return s.Response.Load() }},
}

func describe(name, help string, labels []string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("caddy_upstream_"+name, help, slices.Concat(labels, more), nil)
}

func named[T any](labels []string, table []series[T]) []metric[T] {
	out := make([]metric[T], len(table))
	for i, m := range table {
		out[i] = metric[T]{m, describe(m.name, m.help, labels)}
	}
	return out
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range ofGroups {
		ch <- m.desc
	}
	for _, m := range slices.Concat(ofServers, ofKept) {
		ch <- m.desc
	}
	for _, m := range ofMany {
		ch <- m.desc
	}
	for _, m := range ofTimes {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	for _, r := range allRuntimes() {
		r.collect(ch, now)
	}
}

// send sends the metrics of one thing.
func send[T any](ch chan<- prometheus.Metric, table []metric[T], of *T, labels []string) {
	for i := range table {
		m := &table[i]
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(of), labels...)
	}
}

// collect sends the metrics of one group.
func (r entry) collect(ch chan<- prometheus.Metric, now time.Time) {
	r.mu.Lock()
	status, peers, kept := r.group.Status(), r.group.Snapshot(now), r.connectionsLocked()
	owners := map[string]string{}
	for _, l := range r.linesLocked() {
		for _, p := range l.peers {
			owners[p.ID] = l.server.id()
		}
	}
	r.mu.Unlock()
	send(ch, ofGroups, &status, []string{r.id})
	seen := map[[2]string]bool{}
	for i := range peers {
		p := &sight{State: &peers[i], now: now, kept: kept[peers[i].Server.Address]}
		key := [2]string{cmp.Or(owners[p.Server.ID], p.Server.ID), p.Server.Address}
		for n := 2; seen[key]; n++ { // one address twice, in SRV records
			key[1] = p.Server.Address + suffix(n)
		}
		seen[key] = true
		p.collect(ch, []string{r.id, key[0], key[1]})
	}
}

// histogramLimits are the upper bounds of the buckets.
var histogramLimits = peer.Limits()

// collect sends the metrics of one server.
func (s *sight) collect(ch chan<- prometheus.Metric, labels []string) {
	send(ch, ofServers, s, labels)
	if s.kept != nil {
		send(ch, ofKept, s, labels)
	}
	for _, m := range ofMany {
		for what, n := range m.values(s) {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(n), append(slices.Clone(labels), what)...)
		}
	}
	for _, m := range ofTimes {
		h := m.value(s.Stats)
		if h == nil {
			continue
		}
		count, sum, below := h.Total(histogramLimits)
		buckets := make(map[float64]uint64, len(below))
		for i, n := range below {
			buckets[histogramLimits[i].Seconds()] = n
		}
		ch <- prometheus.MustNewConstHistogram(m.desc, count, sum.Seconds(), buckets, labels...)
	}
}
