// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package l4stream is the `stream` app: layer-4 proxying of TCP and UDP over
// the groups of the upstream app, with nginx's phases, directives and variables.
//
//	{
//		upstream db {
//			server 10.0.0.1:3306
//			server 10.0.0.2:3306 backup
//		}
//		stream {
//			server :3306 {
//				allow 10.0.0.0/8
//				deny all
//				proxy_pass db {
//					connect_timeout 2s
//				}
//				access_log
//			}
//		}
//	}
//
// A session runs through the handlers of its server in the order of their
// phases (see [Phase]). Exactly one of them is the content handler; log handlers
// run once at the end, whatever ended the session.
//
// A socket is opened once and handed from configuration to configuration, so
// that a reload loses no queued connection and moves no flow of datagrams.
// Sessions outlive their configuration.
package l4stream
