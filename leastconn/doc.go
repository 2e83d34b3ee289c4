// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package leastconn is weighted least connections, nginx's least_conn: the
// server with the smallest number of requests or sessions in progress, divided
// by its weight. If several have exactly the same, smooth weighted round robin
// decides among just those.
//
//	upstream app {
//		least_conn
//		server 10.0.0.1:80 weight=2
//		server 10.0.0.2:80
//	}
package leastconn
