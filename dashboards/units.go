// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/units"

	"github.com/velo-agent/velo-agent/collectors"
)

// unit is Grafana's name for the unit of a family's values.
func unit(f collectors.Family) string {
	switch f.Unit {
	case "seconds":
		return units.Seconds
	case "bytes":
		return units.BytesIEC
	}
	return units.Short
}

// rateUnit is the unit of a counter's rate: seconds in a second are a share.
func rateUnit(f collectors.Family) string {
	if f.Unit == "seconds" {
		return units.PercentUnit
	}
	return units.CountsPerSecond
}
