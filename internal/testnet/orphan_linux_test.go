// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// orphanEnv makes the test binary start a Caddy and die without cleaning up.
const orphanEnv = "TESTNET_TEST_ORPHAN"

// A test binary that dies in the middle of a test leaves no Caddy behind. A
// parent's death is told on Linux only.
func TestCaddyEndsWithTheTestBinary(t *testing.T) {
	if os.Getenv(orphanEnv) != "" {
		c := StartCaddy(t, "http://127.0.0.1:{{port \"front\"}} {\n\trespond ok\n}\n", nil)
		fmt.Printf("orphan=%d\n", c.PID())
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	cmd := exec.Command(self(t), "-test.run=^TestCaddyEndsWithTheTestBinary$")
	cmd.Env = append(os.Environ(), orphanEnv+"=1", "TMPDIR="+t.TempDir())
	out, _ := cmd.Output()
	var pid int
	if _, after, ok := strings.Cut(string(out), "orphan="); !ok {
		t.Fatalf("no pid in %q", out)
	} else if _, err := fmt.Sscan(after, &pid); err != nil {
		t.Fatal(err)
	}
	Eventually(t, 10*time.Second, "the end of the orphan", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
