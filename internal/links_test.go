// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package internal

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notInSlug = regexp.MustCompile(`[^\pL\pN _-]`)
)

// slug is the anchor of a heading.
func slug(heading string) string {
	return strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

func TestLinksInDocumentsLeadToFilesAndHeadingsThatExist(t *testing.T) {
	anchors := map[string]map[string]bool{} // by file
	links := map[string][]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		anchors[path] = map[string]bool{}
		for _, m := range mdHeading.FindAllStringSubmatch(string(text), -1) {
			anchors[path][slug(m[1])] = true
		}
		for _, m := range mdLink.FindAllStringSubmatch(string(text), -1) {
			links[path] = append(links[path], m[1])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(links) < 10 {
		t.Fatalf("links were found in %d documents only", len(links))
	}
	for path, all := range links {
		for _, link := range all {
			if strings.Contains(link, "://") {
				continue
			}
			file, anchor, hasAnchor := strings.Cut(link, "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", path, err)
			} else if hasAnchor && !anchors[target][anchor] {
				t.Errorf("%s: no heading #%s in %s", path, anchor, target)
			}
		}
	}
}
