// SPDX-License-Identifier: Apache-2.0

// Package config owns the daemon's configuration: what may be set, its defaults
// and ranges, and how a YAML file with its drop-ins becomes a [Config]. Each key is
// declared once, in the table of keys.go; loading, checking, the JSON schema, the
// listing and the reference in docs/configuration.md read that table.
package config
