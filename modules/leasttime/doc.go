// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

// Package leasttime chooses by how long servers take to answer: nginx's
// least_time, with its averages, clusters of 20 ms and fading, and
// "least_time ewma", a peak-sensitive moving average with two random choices
// (as Finagle and linkerd have it).
//
// A server that is added to running ones starts with the mean of their times.
// What is known lies with the peer and outlives changes of the configuration.
// A pick of least_time looks at every server; one of ewma does not.
package leasttime
