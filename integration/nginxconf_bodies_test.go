// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-upstream/caddy-upstream/internal/testnet"
)

// aBodyFile is the name of a file with a body: what is in it is by chance.
var aBodyFile = regexp.MustCompile(`(/\d+)*/\d{10}\b`)

// keptFiles waits for n files below dir and returns what they are, numbers left
// out; then they are gone.
func keptFiles(t *testing.T, dir string, n int) []string {
	t.Helper()
	testnet.Eventually(t, 30*time.Second, fmt.Sprintf("%d files", n), func() bool {
		count := 0
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				count++
			}
			return nil
		})
		return count == n
	})
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		levels := strings.Count(strings.TrimPrefix(path, dir), "/")
		out = append(out, fmt.Sprintf("%d levels, %s, %d bytes: %.20s", levels, info.Mode(), len(text), text))
		return os.Remove(path)
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func TestBodiesAreKeptInFilesAsInNginx(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for nginx's worker
		t.Fatal(err)
	}
	backend := testnet.NewBackendFunc(t, func(r testnet.Request) testnet.Answer {
		return testnet.Answer{Body: "file " + r.Get("X-File")}
	})
	conf := `http { access_log off; client_body_buffer_size 1k; proxy_set_header X-File $request_body_file;
	server { listen FRONT; listen OTHER; client_body_temp_path ` + dir + `/flat;
		location /on { client_body_in_file_only on; proxy_pass http://B; }
		location /levels { client_body_in_file_only on; client_body_temp_path ` + dir + `/deep 1 2; proxy_pass http://B; }
		location /clean { client_body_in_file_only clean; proxy_pass http://B; }
		location /off { proxy_pass http://B; }
		location /name { client_body_in_file_only on; proxy_pass_request_body off; proxy_set_header Content-Length ""; proxy_set_header X-File $request_body_file; proxy_pass http://B; }
		location /unbuffered { client_body_in_file_only on; proxy_request_buffering off; proxy_pass http://B; }
		location /own { client_body_in_file_only on; return 200 own; }
	} }
`
	large := []byte(strings.Repeat("0123456789", 500))
	onBoth(t, strings.ReplaceAll(conf, "http://B;", "http://"+backend.Addr()+";"), func(front, _ string) []string {
		var out []string
		for path, kept := range map[string]int{"/on": 3, "/levels": 3, "/clean": 0, "/off": 0, "/name": 3, "/unbuffered": 0, "/own": 0} {
			for _, body := range [][]byte{nil, []byte("small"), large} {
				method := "POST"
				if body == nil {
					method = "GET"
				}
				res, err := exchangeOnce(front, method, path, nil, body)
				out = append(out, fmt.Sprint(path, " ", res.Status, aBodyFile.ReplaceAllString(res.Text(), "#"), err))
				for _, r := range backend.Requests() {
					out = append(out, fmt.Sprintf("%s: the backend got %d bytes: %.10s", path, len(r.Body), r.Body))
				}
				backend.Forget()
			}
			res, err := exchangeOnce(front, "POST", path, []string{"Content-Length: 0"}, nil)
			backend.Forget()
			out = append(out, fmt.Sprint(path, " empty ", res.Status, aBodyFile.ReplaceAllString(res.Text(), "#"), err))
			for _, file := range keptFiles(t, dir, kept) {
				out = append(out, path+": "+file)
			}
		}
		slices.Sort(out)
		return out
	})
}
