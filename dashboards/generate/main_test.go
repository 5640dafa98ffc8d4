// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	folder := t.TempDir()
	if err := write(folder); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node.json", "stages.json", "sockets.json", "agent.json", "plane.json", "rules.yaml"} {
		if text, err := os.ReadFile(filepath.Join(folder, name)); err != nil || len(text) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	if err := write(filepath.Join(folder, "missing")); err == nil || !strings.Contains(err.Error(), "root of the repository") {
		t.Errorf("a folder that is not there: %v", err)
	}
}
