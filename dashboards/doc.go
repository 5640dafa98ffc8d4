// SPDX-License-Identifier: Apache-2.0

// Package dashboards makes the Grafana dashboards and the Prometheus rules of the
// agent from the tables of metrics (collectors.Table, velo.Table). Names, units, descriptions and
// links all come from there; the files beside this one are written by
// go run ./dashboards/generate.
package dashboards

// docs is where the pages that Family.Docs names are read.
const docs = "https://github.com/velo-agent/velo-agent/blob/main/docs/"
