// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package caddyfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-upstream/caddy-upstream/internal/pools"
)

// Mistakes that only JSON can hold, or that show only when a configuration is
// loaded: the error names the field, the value, the rule and where it is.

const oneServer = `"servers":[{"address":"127.0.0.1:9001"}]`

// groupJSON is a configuration with the group app.
func groupJSON(group string) string {
	return fmt.Sprintf(`{"apps":{"upstream":{"groups":{"app":{%s}}}}}`, group)
}

// serverJSON is one with a single server, too.
func serverJSON(fields string) string {
	return groupJSON(fmt.Sprintf(`"servers":[{%s}]`, fields))
}

// handlerJSON is one with the group app and a reverse_proxy handler.
func handlerJSON(fields string) string {
	return fmt.Sprintf(`{"apps":{
		"upstream":{"groups":{"app":{%s}}},
		"http":{"servers":{"s":{"listen":["127.0.0.1:0"],"routes":[{"handle":[{"handler":"reverse_proxy",%s}]}]}}}
	}}`, oneServer, fields)
}

const (
	toGroup   = `"load_balancing":{"selection_policy":{"policy":"upstream","group":"app"}}`
	pool      = `"upstreams":[{"dial":"127.0.0.1:9001"},{"dial":"127.0.0.1:9002"}]`
	overNext  = `"transport":{"protocol":"next_upstream"}`
	keepalive = `"transport":{"protocol":"next_upstream","transport":{"protocol":"upstream_keepalive",%s}}`
)

// offJSON is handlerJSON over a group that keeps no connections.
func offJSON(fields string) string {
	return strings.Replace(handlerJSON(fields), oneServer, oneServer+`,"keepalive":{"connections":0}`, 1)
}

func nextJSON(fields string) string {
	return handlerJSON(toGroup + `,"transport":{"protocol":"next_upstream",` + fields + `}`)
}

func staticJSON(fields string) string {
	return handlerJSON(pool + `,"load_balancing":{"selection_policy":{"policy":"smooth_round_robin"` + fields + `}}`)
}

func policyJSON(lb, other string) string {
	return handlerJSON(`"load_balancing":{"selection_policy":{"policy":"upstream","group":"app"}` + lb + `},` + overNext + other)
}

const learnZ = `,"sticky":{"mode":"learn","create":["{x}"],"lookup":["{x}"],"zone":"z","zone_size":40000}`

var jsonMistakes = []struct{ name, config, want string }{
	{"a group without servers", groupJSON(``), `group app: no primary server: expected at least one server without backup`},
	{"a null group", `{"apps":{"upstream":{"groups":{"app":null}}}}`, `group app is null`},
	{"a bad group name", `{"apps":{"upstream":{"groups":{"my app":{` + oneServer + `}}}}}`, `group name "my app": expected only letters, digits, and _ . -`},
	{"an unknown field", groupJSON(oneServer + `,"zone":"app"`), `unknown field "zone"`},
	{"only backups", serverJSON(`"address":"127.0.0.1:9001","backup":true`), `group app: no primary server: expected at least one server without backup`},
	{"a null server", groupJSON(`"servers":[null]`), `group app: server 0 is null`},
	{"a server without an address", serverJSON(`"weight":2`), `group app: server 0: the address is missing`},
	{"weight 0", serverJSON(`"address":"127.0.0.1:9001","weight":0`), `group app: server 127.0.0.1:9001: weight 0: must be 1 or more; use down or drain to take a server out`},
	{"a negative weight", serverJSON(`"address":"127.0.0.1:9001","weight":-3`), `weight -3: must be 1 or more`},
	{"a negative max_conns", serverJSON(`"address":"127.0.0.1:9001","max_conns":-1`), `server 127.0.0.1:9001: max_conns -1: must not be negative`},
	{"a negative max_fails", serverJSON(`"address":"127.0.0.1:9001","max_fails":-1`), `server 127.0.0.1:9001: max_fails -1: must not be negative`},
	{"a negative fail_timeout", serverJSON(`"address":"127.0.0.1:9001","fail_timeout":"-1s"`), `server 127.0.0.1:9001: fail_timeout -1s: must not be negative`},
	{"an unknown field of a server", serverJSON(`"address":"127.0.0.1:9001","wieght":2`), `unknown field "wieght"`},
	{"a duplicate address", groupJSON(`"servers":[{"address":"127.0.0.1:9001"},{"address":"127.0.0.1:9001"}]`), `group app: server "127.0.0.1:9001": duplicate id: give one of them another`},
	{"a duplicate id", groupJSON(`"servers":[{"address":"127.0.0.1:9001","id":"x"},{"address":"127.0.0.1:9002","id":"x"}]`), `group app: server "x": duplicate id: give one of them another`},
	{"a placeholder of a request", serverJSON(`"address":"{http.request.host}:80"`), `server {http.request.host}:80: placeholder {http.request.host}: only those of the environment, such as {env.HOST}, can be used in an address`},
	{"a placeholder without a value", serverJSON(`"address":"{env.GOLDEN_UNSET}:80"`), `server {env.GOLDEN_UNSET}:80: placeholder {env.GOLDEN_UNSET} has no value`},
	{"a placeholder with a bad value", serverJSON(`"address":"{env.GOLDEN_BAD}:80"`), `server {env.GOLDEN_BAD}:80: "not a host" is neither an IP address nor a host name`},
	{"a scheme", serverJSON(`"address":"http://127.0.0.1"`), `server http://127.0.0.1: expected host:port without a scheme`},
	{"an unknown method", groupJSON(oneServer + `,"balancer":{"method":"best"}`), `group app: balancer: unknown method "best": expected least_conn or smooth_round_robin`},
	{"a method without its name", groupJSON(oneServer + `,"balancer":{}`), `group app: balancer: module name not specified with key 'method'`},
	{"an unknown tracker", groupJSON(oneServer + `,"health_tracker":{"tracker":"psychic"}`), `group app: health_tracker: unknown tracker "psychic": expected passive`},
	{"an option of a method", groupJSON(oneServer + `,"balancer":{"method":"least_conn","fast":true}`), `unknown field "fast"`},
	{"a negative slow_start", serverJSON(`"address":"127.0.0.1:9001","slow_start":"-1s"`), `server 127.0.0.1:9001: slow_start -1s: must not be negative`},
	{"another probe", serverJSON(`"address":"127.0.0.1:9001","probe":"http"`), `server 127.0.0.1:9001: probe "http": expected tcp`},
	{"a probe that is never needed", serverJSON(`"address":"127.0.0.1:9001","probe":"tcp","max_fails":0`), `server 127.0.0.1:9001: probe does nothing beside max_fails=0: the server is never taken out`},
	{"a route without sticky", serverJSON(`"address":"127.0.0.1:9001","route":"a"`), `group app: server 127.0.0.1:9001: route does nothing without sticky: add sticky to the group`},
	{"an unknown sticky mode", groupJSON(oneServer + `,"sticky":{"mode":"source"}`), `group app: sticky: unknown mode "source": expected cookie or learn or route`},
	{"a sticky cookie without a name", groupJSON(oneServer + `,"sticky":{"mode":"cookie"}`), `sticky cookie: name is missing`},
	{"a sticky cookie with a bad name", groupJSON(oneServer + `,"sticky":{"mode":"cookie","name":"a b"}`), `sticky cookie: name "a b": expected letters, digits and none of the separators of HTTP`},
	{"a negative expires", groupJSON(oneServer + `,"sticky":{"mode":"cookie","name":"a","expires":"-1s"}`), `sticky cookie: expires -1s: must not be negative`},
	{"a bad samesite", groupJSON(oneServer + `,"sticky":{"mode":"cookie","name":"a","samesite":"some"}`), `sticky cookie: samesite "some": expected strict, lax or none`},
	{"a bad path", groupJSON(oneServer + `,"sticky":{"mode":"cookie","name":"a","path":"/;b"}`), `sticky cookie: path "/;b": must not have control characters or semicolons`},
	{"a secret without a value", groupJSON(oneServer + `,"sticky":{"mode":"cookie","name":"a","secret":"{env.GOLDEN_UNSET}"}`), `sticky cookie: secret is a placeholder without a value`},
	{"a sticky route without values", groupJSON(oneServer + `,"sticky":{"mode":"route"}`), `sticky route: values: is missing: expected texts with placeholders`},
	{"a sticky learn without create", groupJSON(oneServer + `,"sticky":{"mode":"learn"}`), `sticky learn: create: is missing: expected texts with placeholders`},
	{"a sticky learn without lookup", groupJSON(oneServer + `,"sticky":{"mode":"learn","create":["{x}"]}`), `sticky learn: lookup: is missing: expected texts with placeholders`},
	{"a sticky learn without a zone", groupJSON(oneServer + `,"sticky":{"mode":"learn","create":["{x}"],"lookup":["{x}"]}`), `sticky learn: zone is missing: expected the name of a table of sessions`},
	{"a small zone", groupJSON(oneServer + `,"sticky":{"mode":"learn","create":["{x}"],"lookup":["{x}"],"zone":"z","zone_size":100}`), `sticky learn: zone_size 100: must be at least 32768 bytes`},
	{"a negative timeout of sessions", groupJSON(oneServer + `,"sticky":{"mode":"learn","create":["{x}"],"lookup":["{x}"],"zone":"z","zone_size":40000,"timeout":"-1s"}`), `sticky learn: timeout -1s: must not be negative`},
	{"a zone of two groups", `{"apps":{"upstream":{"groups":{"a":{` + oneServer + learnZ + `},"b":{` + oneServer + learnZ + `}}}}}`, `group b: sticky: zone "z" is that of group a: a zone serves one group only`},
	{"a route in a static pool", staticJSON(`,"servers":[{"address":"127.0.0.1:9001","route":"a"}]`), `server 127.0.0.1:9001: route is for sticky sessions, which need a group: lb_policy upstream <group>`},
	{"an empty queue", groupJSON(oneServer + `,"queue":{}`), `group app: queue: size 0: must be 1 or more; leave queue out to have none`},
	{"a negative queue timeout", groupJSON(oneServer + `,"queue":{"size":1,"timeout":"-1s"}`), `group app: queue: timeout -1s: must not be negative`},
	{"too large a max_unavailable", groupJSON(oneServer + `,"max_unavailable":101`), `group app: max_unavailable 101: must be a percentage from 0 to 100`},
	{"a negative panic", groupJSON(oneServer + `,"panic":-1`), `group app: panic -1: must be a percentage from 0 to 100`},
	{"an empty retry budget", groupJSON(oneServer + `,"retry_budget":{}`), `group app: retry_budget: percent 0: must be from 1 to 100`},
	{"a negative minimum of retries", groupJSON(oneServer + `,"retry_budget":{"percent":20,"min":-1}`), `group app: retry_budget: min -1: must not be negative`},
	{"negative connections", groupJSON(oneServer + `,"keepalive":{"connections":-1}`), `group app: keepalive: connections -1: must not be negative`},
	{"local without connections to keep", groupJSON(oneServer + `,"keepalive":{"connections":0,"local":true}`), `group app: keepalive: local does nothing with 0 connections: leave it out`},
	{"requests without connections to keep", groupJSON(oneServer + `,"keepalive":{"connections":0,"requests":5}`), `group app: keepalive: requests does nothing with 0 connections: leave it out`},
	{"a time without connections to keep", groupJSON(oneServer + `,"keepalive":{"connections":0,"time":"5m"}`), `group app: keepalive: time does nothing with 0 connections: leave it out`},
	{"a timeout without connections to keep", groupJSON(oneServer + `,"keepalive":{"connections":0,"timeout":"5s"}`), `group app: keepalive: timeout does nothing with 0 connections: leave it out`},
	{"stale without connections to keep", groupJSON(oneServer + `,"keepalive":{"connections":0,"stale":"fail"}`), `group app: keepalive: stale does nothing with 0 connections: leave it out`},
	{"negative requests", groupJSON(oneServer + `,"keepalive":{"requests":-1}`), `group app: keepalive: requests -1: must not be negative`},
	{"a negative time", groupJSON(oneServer + `,"keepalive":{"time":"-1s"}`), `group app: keepalive: time -1s: must not be negative`},
	{"a negative timeout", groupJSON(oneServer + `,"keepalive":{"timeout":"-1s"}`), `group app: keepalive: timeout -1s: must not be negative`},
	{"an unknown word for stale", groupJSON(oneServer + `,"keepalive":{"stale":"maybe"}`), `group app: keepalive: stale "maybe": expected retry or fail`},

	{"an unknown group", handlerJSON(`"load_balancing":{"selection_policy":{"policy":"upstream","group":"web"}}`), `unknown group "web": known groups: app`},
	{"no group", handlerJSON(`"load_balancing":{"selection_policy":{"policy":"upstream"}}`), `policies.upstream: group is missing: expected the name of a group`},
	{"a group without the app", strings.Replace(handlerJSON(toGroup), `"upstream":{"groups":{"app":{`+oneServer+`}}},`, "", 1), `unknown group "app": the upstream app is not configured`},
	{"a list beside a group", handlerJSON(toGroup + `,` + pool), `a list of upstreams (to) does nothing beside lb_policy upstream app: the group has its own servers and health`},
	{"dynamic upstreams beside a group", handlerJSON(toGroup + `,"dynamic_upstreams":{"source":"upstream","group":"app"}`), `dynamic upstreams do nothing beside lb_policy upstream app`},
	{"health checks beside a group", handlerJSON(toGroup + `,"health_checks":{"active":{"uri":"/up"}}`), `active health checks (health_uri and other health_*) do nothing beside lb_policy upstream app`},
	{"a source without a group", handlerJSON(`"dynamic_upstreams":{"source":"upstream"}`), `upstreams.upstream: group is missing: expected the name of a group`},
	{"a source of an unknown group", handlerJSON(`"dynamic_upstreams":{"source":"upstream","group":"web"}`), `unknown group "web": known groups: app`},

	{"a static policy without a list", handlerJSON(`"load_balancing":{"selection_policy":{"policy":"smooth_round_robin"}}`), `policy smooth_round_robin: no upstreams (to)`},
	{"a static policy over a source", handlerJSON(`"dynamic_upstreams":{"source":"upstream","group":"app"},"load_balancing":{"selection_policy":{"policy":"weighted_least_conn"}}`), `policy weighted_least_conn needs a static list of upstreams (to)`},
	{"a server that is not in the list", staticJSON(`,"servers":[{"address":"127.0.0.1:9009"}]`), `policies.smooth_round_robin: server 127.0.0.1:9009 is not in the list of upstreams (to)`},
	{"a server of a static policy twice", staticJSON(`,"servers":[{"address":"127.0.0.1:9001"},{"address":"127.0.0.1:9001"}]`), `policies.smooth_round_robin: server 127.0.0.1:9001 given twice`},
	{"a null server of a static policy", staticJSON(`,"servers":[null]`), `policies.smooth_round_robin: server 0 is null`},
	{"weight 0 in a static policy", staticJSON(`,"servers":[{"address":"127.0.0.1:9001","weight":0}]`), `server 127.0.0.1:9001: weight 0: must be 1 or more; use down or drain to take a server out`},
	{"only backups in a static policy", staticJSON(`,"servers":[{"address":"127.0.0.1:9001","backup":true},{"address":"127.0.0.1:9002","backup":true}]`), `policies.smooth_round_robin: no primary server: expected at least one server without backup`},
	{"a duplicate id in a static policy", staticJSON(`,"servers":[{"address":"127.0.0.1:9001","id":"x"},{"address":"127.0.0.1:9002","id":"x"}]`), `server "x": duplicate id: give one of them another`},
	{"an unknown tracker of a static policy", staticJSON(`,"health_tracker":{"tracker":"psychic"}`), `health_tracker: unknown tracker "psychic": expected passive`},
	{"a placeholder in a list", handlerJSON(`"upstreams":[{"dial":"{http.request.host}:80"}],"load_balancing":{"selection_policy":{"policy":"smooth_round_robin"}}`), `upstream {http.request.host}:80: placeholder {http.request.host}: only those of the environment`},

	{"an unknown condition", nextJSON(`"conditions":["http_501"]`), `next_upstream: conditions: unknown condition "http_501": expected error, timeout,`},
	{"off beside a condition", nextJSON(`"conditions":["off","error"]`), `next_upstream: conditions: "off" cannot be combined with other conditions`},
	{"negative tries", nextJSON(`"tries":-1`), `next_upstream: tries -1: must not be negative`},
	{"a negative time limit", nextJSON(`"timeout":"-1s"`), `next_upstream: timeout -1s: must not be negative`},
	{"a negative hedge", nextJSON(`"connect_hedge":"-1s"`), `next_upstream: connect_hedge -1s: must not be negative`},
	{"a hedge as long as connecting", nextJSON(`"connect_hedge":"60s"`), `next_upstream: connect_hedge 1m0s does nothing: it must be shorter than connect_timeout, which is 1m0s`},
	{"a hedge for one try", nextJSON(`"connect_hedge":"1s","tries":1`), `next_upstream: connect_hedge does nothing with one try for each request`},
	{"a hedge over Caddy's transport", nextJSON(`"connect_hedge":"1s","transport":{"protocol":"http"}`), `next_upstream: connect_hedge does nothing over this transport`},
	{"an unknown word for buffering", nextJSON(`"request_buffering":"maybe"`), `next_upstream: request_buffering "maybe": expected on or off`},
	{"a negative buffer size", nextJSON(`"request_buffer_size":-1`), `next_upstream: request_buffer_size -1: must not be negative`},
	{"a negative file size", nextJSON(`"request_max_temp_file":-1`), `next_upstream: request_max_temp_file -1: must not be negative`},
	{"a negative total size", nextJSON(`"request_max_temp_total":-1`), `next_upstream: request_max_temp_total -1: must not be negative`},
	{"a buffer size without buffering", nextJSON(`"request_buffering":"off","request_buffer_size":5`), `next_upstream: request_buffer_size does nothing beside request_buffering off`},
	{"buffering over h2c", nextJSON(`"request_buffering":"on","transport":{"protocol":"http","versions":["h2c","2"]}`), `next_upstream: request_buffering on does nothing over HTTP/2 and 3`},
	{"an unknown word for keepalive_stale", nextJSON(`"keepalive_stale":"maybe"`), `next_upstream: keepalive_stale "maybe": expected retry or fail`},
	{"keepalive_stale over http", nextJSON(`"keepalive_stale":"fail","transport":{"protocol":"http"}`), `next_upstream: keepalive_stale does nothing over this transport: it is for upstream_keepalive`},
	{"next_upstream in next_upstream", nextJSON(`"transport":{"protocol":"next_upstream"}`), `next_upstream cannot stand in next_upstream`},
	{"an unknown transport", nextJSON(`"transport":{"protocol":"pigeon"}`), `next_upstream: transport: loading module 'pigeon': unknown module: http.reverse_proxy.transport.pigeon`},
	{"next_upstream over a policy of Caddy's", handlerJSON(pool + `,` + overNext), `next_upstream needs a selection policy of caddy-upstream: lb_policy upstream <group>, smooth_round_robin or another`},
	{"lb_retries", policyJSON(`,"retries":2`, ``), `lb_retries does nothing beside next_upstream: use tries`},
	{"lb_try_duration", policyJSON(`,"try_duration":"5s"`, ``), `lb_try_duration does nothing beside next_upstream: use timeout`},
	{"lb_try_interval", policyJSON(`,"try_interval":"5s"`, ``), `lb_try_interval does nothing beside next_upstream: there is no wait between tries`},
	{"lb_retry_match", policyJSON(`,"retry_match":[{"method":["GET"]}]`, ``), `lb_retry_match does nothing beside next_upstream: use conditions`},
	{"request_buffers", policyJSON(``, `,"request_buffers":5`), `request_buffers does nothing beside next_upstream: use request_buffering and request_buffer_size`},
	{"a circuit breaker", policyJSON(``, `,"circuit_breaker":{"type":"any"}`), `next_upstream: circuit_breaker does nothing beside next_upstream: use max_fails and fail_timeout of the servers`},
	{"a circuit breaker over Caddy's transport", handlerJSON(toGroup + `,"circuit_breaker":{"type":"any"}`), `circuit_breaker does nothing beside lb_policy upstream app: the group has its own servers and health`},
	{"passive health checks", policyJSON(``, `,"health_checks":{"passive":{"fail_duration":"5s"}}`), `passive health checks (fail_duration, max_fails, unhealthy_*) do nothing beside next_upstream: use max_fails and fail_timeout of the servers`},

	{"a keepalive_timeout beside the group's", offJSON(toGroup + `,` + fmt.Sprintf(keepalive, `"keepalive_timeout":"5s"`)), `keepalive_timeout does nothing beside the group's keepalive off`},
	{"a keepalive_stale beside the group's", offJSON(toGroup + `,"transport":{"protocol":"next_upstream","keepalive_stale":"fail"}`), `keepalive_stale does nothing beside the group's keepalive off`},
	{"a keepalive_stale beside the handler's", nextJSON(`"keepalive_stale":"fail","transport":{"protocol":"upstream_keepalive","keepalive":0}`), `next_upstream: keepalive_stale does nothing beside keepalive off`},
	{"a keepalive_time beside keepalive 0", handlerJSON(toGroup + `,` + fmt.Sprintf(keepalive, `"keepalive":0,"keepalive_time":"5s"`)), `keepalive_time does nothing beside keepalive off`},
	{"keepalive_local beside keepalive 0", handlerJSON(toGroup + `,` + fmt.Sprintf(keepalive, `"keepalive":0,"keepalive_local":true`)), `keepalive 0 keeps nothing: leave local out`},
	{"keepalive beside proxy_protocol", handlerJSON(toGroup + `,` + fmt.Sprintf(keepalive, `"keepalive":5,"proxy_protocol":"v1"`)), `keepalive does nothing beside proxy_protocol`},
	{"a port that is none", handlerJSON(toGroup + `,` + fmt.Sprintf(keepalive, `"tls":{"except_ports":["http"]}`)), `tls: except_ports: port "http": expected a number from 1 to 65535`},
	{"negative keepalive", handlerJSON(toGroup + `,` + fmt.Sprintf(keepalive, `"keepalive":-1`)), `keepalive is -1: it is a number of connections, 0 for none`},
	{"keepalive_local alone", handlerJSON(toGroup + `,` + fmt.Sprintf(keepalive, `"keepalive_local":true`)), `keepalive_local means nothing without keepalive`},
	{"a negative connect_timeout", handlerJSON(toGroup + `,` + fmt.Sprintf(keepalive, `"connect_timeout":"-1s"`)), `connect_timeout is -1s: it cannot be negative`},
	{"http_version 2", handlerJSON(toGroup + `,` + fmt.Sprintf(keepalive, `"http_version":"2"`)), `http_version is "2": it is 1.0 or 1.1; for others use the http transport`},
	{"an unknown curve", handlerJSON(toGroup + `,` + fmt.Sprintf(keepalive, `"tls":{"curves":["x25520"]}`)), `x25520`},
}

func TestMistakesInJSONAreNamed(t *testing.T) {
	t.Setenv("GOLDEN_BAD", "not a host")
	for _, m := range jsonMistakes {
		t.Run(m.name, func(t *testing.T) {
			err := load([]byte(m.config))
			switch {
			case err == nil:
				t.Errorf("loading gives no error, want %s", m.want)
			case !strings.Contains(err.Error(), m.want):
				t.Errorf("loading gives: %v\nwant %s", err, m.want)
			case strings.Contains(err.Error(), "\n"):
				t.Errorf("the error has more than one line: %v", err)
			}
			for _, held := range append(pools.Held(), proxyHosts(t)...) {
				t.Errorf("still held after a load that failed: %s", held)
			}
		})
	}
}
