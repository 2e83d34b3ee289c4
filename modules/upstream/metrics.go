// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
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

func metric(name, help string, labels []string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("caddy_upstream_"+name, help, append(append([]string(nil), labels...), more...), nil)
}

var (
	mRequests = metric("requests_total", "Requests and stream sessions that were given a server.", groupLabels)
	mRefused  = metric("refused_total", "Times that a request or session found no server.", groupLabels)
	mGRetries = metric("retries_total", "Further tries of requests and sessions.", groupLabels)
	mQueue    = metric("queue", "Requests that wait for a server.", groupLabels)
	mServers  = metric("servers", "Servers of the group.", groupLabels)
	mUsable   = metric("servers_up", "Servers that are neither down nor draining nor out.", groupLabels)

	mUp        = metric("server_up", "1 if the server can be used, else 0. A full one can.", serverLabels)
	mActive    = metric("server_active", "Requests and sessions in progress.", serverLabels)
	mFailed    = metric("server_failed_check", "1 for each active check that has the server out.", serverLabels, "check")
	mTries     = metric("server_tries_total", "Tries at the server.", serverLabels)
	mRetries   = metric("server_retries_total", "Tries that followed one at another server.", serverLabels)
	mFailures  = metric("server_failures_total", "Failed tries, by nginx's words.", serverLabels, "reason")
	mResponses = metric("server_responses_total", "Responses by class.", serverLabels, "class")
	mSessions  = metric("server_sessions_total", "Stream sessions that were connected.", serverLabels)
	mSent      = metric("server_sent_bytes_total", "Bytes sent, counted at the end of a request or session.", serverLabels)
	mReceived  = metric("server_received_bytes_total", "Bytes received, counted at the end of a request or session.", serverLabels)
	mIdle      = metric("server_idle_connections", "Connections that are kept.", serverLabels)
	mCreated   = metric("server_connections_total", "Connections opened by upstream_keepalive.", serverLabels)
	mReused    = metric("server_reused_total", "Requests that found a kept connection.", serverLabels)
	mHeader    = metric("server_header_seconds", "Time to the response header, or to the first byte of a stream session.", serverLabels)
	mResponse  = metric("server_response_seconds", "Time to the end of the response or session.", serverLabels)
)

var allMetrics = []*prometheus.Desc{
	mRequests, mRefused, mGRetries, mQueue, mServers, mUsable, mUp, mFailed, mActive, mTries, mRetries, mFailures, mResponses,
	mSessions, mSent, mReceived, mIdle, mCreated, mReused, mHeader, mResponse,
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range allMetrics {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	for _, r := range allRuntimes() {
		s := sink{ch: ch, group: []string{r.id}}
		s.collect(r.Runtime, now)
	}
}

// sink sends the metrics of one group.
type sink struct {
	ch    chan<- prometheus.Metric
	group []string
}

func (s *sink) send(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels []string, more ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, kind, v, append(append([]string(nil), labels...), more...)...)
}

func (s *sink) count(d *prometheus.Desc, v uint64, labels []string, more ...string) {
	s.send(d, prometheus.CounterValue, float64(v), labels, more...)
}

func (s *sink) gauge(d *prometheus.Desc, v float64, labels []string) {
	s.send(d, prometheus.GaugeValue, v, labels)
}

func (s *sink) collect(r *Runtime, now time.Time) {
	r.mu.Lock()
	status, peers, kept := r.group.Status(), r.group.Snapshot(), r.connectionsLocked()
	owners := map[string]string{}
	for _, l := range r.linesLocked() {
		for _, p := range l.peers {
			owners[p.ID] = l.server.id()
		}
	}
	r.mu.Unlock()
	s.count(mRequests, status.Requests, s.group)
	s.count(mRefused, status.Refused, s.group)
	s.count(mGRetries, status.Retries, s.group)
	s.gauge(mQueue, float64(status.Waiting), s.group)
	s.gauge(mServers, float64(status.Members), s.group)
	s.gauge(mUsable, float64(status.Up), s.group)
	seen := map[[2]string]bool{}
	for i := range peers {
		p := &peers[i]
		id := owners[p.Server.ID]
		if id == "" {
			id = p.Server.ID
		}
		key := [2]string{id, p.Server.Address}
		for n := 2; seen[key]; n++ { // one address twice, in SRV records
			key[1] = p.Server.Address + suffix(n)
		}
		seen[key] = true
		s.server(p, []string{s.group[0], key[0], key[1]}, kept[p.Server.Address], now)
	}
}

// histogramLimits are the upper bounds of the buckets.
var histogramLimits = peer.Limits()

func (s *sink) server(p *peer.State, labels []string, kept *KeepaliveState, now time.Time) {
	up := 0.0
	switch stateName(*p, now) {
	case "up", "full":
		up = 1
	}
	s.gauge(mUp, up, labels)
	s.failedChecks(p, labels)
	s.gauge(mActive, float64(p.Conns), labels)
	s.count(mTries, p.Picks, labels)
	s.count(mRetries, p.Retries, labels)
	for reason, n := range p.Reasons.Map() {
		s.count(mFailures, n, labels, reason)
	}
	for class, n := range classes(p.Stats) {
		s.count(mResponses, n, labels, class)
	}
	if n := p.Stats.Sessions.Load(); n > 0 {
		s.count(mSessions, n, labels)
	}
	s.count(mSent, p.Stats.Sent.Load(), labels)
	s.count(mReceived, p.Stats.Received.Load(), labels)
	if kept != nil {
		s.gauge(mIdle, float64(kept.Idle), labels)
		s.count(mCreated, kept.Created, labels)
		s.count(mReused, kept.Reused, labels)
	}
	s.histogram(mHeader, p.Stats.Header.Load(), labels)
	s.histogram(mResponse, p.Stats.Response.Load(), labels)
}

// failedChecks counts checks of one name as one: they ask different things.
func (s *sink) failedChecks(p *peer.State, labels []string) {
	seen := map[string]bool{}
	for _, c := range p.Checks {
		if !seen[c.Check] {
			seen[c.Check] = true
			s.send(mFailed, prometheus.GaugeValue, 1, labels, c.Check)
		}
	}
}

func (s *sink) histogram(d *prometheus.Desc, h *peer.Histogram, labels []string) {
	if h == nil {
		return
	}
	count, sum, below := h.Total(histogramLimits)
	buckets := make(map[float64]uint64, len(below))
	for i, n := range below {
		buckets[histogramLimits[i].Seconds()] = n
	}
	s.ch <- prometheus.MustNewConstHistogram(d, count, sum.Seconds(), buckets, labels...)
}
