// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNewest(t *testing.T) {
	names := []string{
		"linux-image-6.1.0-9-cloud-amd64", "linux-image-6.1.0-57-cloud-amd64", "linux-image-6.1.0-57-cloud-amd64-unsigned",
		"linux-image-6.1.0-58-cloud-amd64-dbg", "linux-image-6.1.0-59-amd64", "linux-image-6.1.0-60-rt-amd64",
		"linux-image-6.12.9+deb13-cloud-amd64", "linux-image-6.12.117+deb12-cloud-amd64", "linux-image-cloud-amd64",
	}
	for series, want := range map[string]string{
		"6.1":  "linux-image-6.1.0-57-cloud-amd64",
		"6.12": "linux-image-6.12.117+deb12-cloud-amd64",
		"6.18": "",
	} {
		if got := newest(names, series); got != want {
			t.Errorf("newest of %s is %q, want %q", series, got, want)
		}
	}
}

func TestCached(t *testing.T) {
	dir := t.TempDir()
	if _, ok := Cached(dir, "6.1"); ok {
		t.Error("an empty folder holds a kernel")
	}
	for _, d := range []string{"boot", "usr/lib/modules/6.1.0-57-cloud-amd64"} {
		if err := os.MkdirAll(filepath.Join(dir, "6.1", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(dir, "6.1", "boot", "vmlinuz-6.1.0-57-cloud-amd64")
	if err := os.WriteFile(image, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	k, ok := Cached(dir, "6.1")
	if !ok || k.Release != "6.1.0-57-cloud-amd64" || k.Image != image || k.Series != "6.1" {
		t.Errorf("found %+v, %v", k, ok)
	}
}
