// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package upstreamkeepalive

import (
	"time"

	"golang.org/x/sys/windows"
)

// cpu is this process's processor time: the server's is not in it.
func cpu() time.Duration {
	var created, ended, kernel, user windows.Filetime
	if windows.GetProcessTimes(windows.CurrentProcess(), &created, &ended, &kernel, &user) != nil {
		return 0
	}
	return hundreds(kernel) + hundreds(user)
}

// hundreds is a number of hundreds of nanoseconds.
func hundreds(t windows.Filetime) time.Duration {
	return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
}
