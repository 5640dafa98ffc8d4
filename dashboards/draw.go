// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"

	"github.com/velo-agent/velo-agent/attribution"
)

// lines draws values over time.
func lines(unit string) *timeseries.PanelBuilder {
	b := timeseries.NewPanelBuilder().Unit(unit).Min(0).
		LineWidth(1).FillOpacity(8).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).
			DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).Calcs([]string{})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	for s := range attribution.NumStages {
		b = b.OverrideByName(s.String(), colour(s))
	}
	return b
}

// layers draws values over time, one upon the other.
func layers(unit string) *timeseries.PanelBuilder {
	return stacked(unit, common.StackingModeNormal)
}

// shares draws values over time as shares of their sum.
func shares() *timeseries.PanelBuilder {
	return stacked(units.PercentUnit, common.StackingModePercent)
}

func stacked(unit string, mode common.StackingMode) *timeseries.PanelBuilder {
	return lines(unit).FillOpacity(70).LineWidth(0).
		Stacking(common.NewStackingConfigBuilder().Mode(mode).Group("A"))
}

// bars draws the latest values, one below the other in the order of the queries.
func bars(unit string) *bargauge.PanelBuilder {
	b := bargauge.NewPanelBuilder().Unit(unit).Min(0).
		Orientation(common.VizOrientationHorizontal).DisplayMode(common.BarGaugeDisplayModeBasic).
		ReduceOptions(latest())
	for s := range attribution.NumStages {
		b = b.OverrideByName(s.String(), colour(s))
	}
	return b
}

// filling draws shares of a limit: from 80 % on they want looking at.
func filling() *bargauge.PanelBuilder {
	const limit = 0.8
	return bars(units.PercentUnit).Max(1).Thresholds(dashboard.NewThresholdsConfigBuilder().
		Mode(dashboard.ThresholdsModeAbsolute).
		Steps([]dashboard.Threshold{{Color: "green"}, {Value: new(limit), Color: "red"}}))
}

// cells draws the buckets of a histogram over time.
func cells(unit string) *heatmap.PanelBuilder {
	return heatmap.NewPanelBuilder().Calculate(false).
		Color(heatmap.NewHeatmapColorOptionsBuilder().Mode(heatmap.HeatmapColorModeScheme).
			Scheme("Oranges").Scale(heatmap.HeatmapColorScaleExponential).Exponent(0.5).Steps(64)).
		CellValues(heatmap.NewCellValuesBuilder().Unit(units.CountsPerSecond)).
		YAxis(heatmap.NewYAxisConfigBuilder().Unit(unit).AxisPlacement(common.AxisPlacementLeft))
}

// number draws the latest value.
func number(unit string) *stat.PanelBuilder {
	return stat.NewPanelBuilder().Unit(unit).
		GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeValue).ReduceOptions(latest())
}

// upOrDown draws 1 and 0 as words.
func upOrDown() *stat.PanelBuilder {
	word := func(text, colour string) dashboard.ValueMappingResult {
		return dashboard.ValueMappingResult{Text: &text, Color: &colour}
	}
	return number(units.Short).ColorMode(common.BigValueColorModeBackground).
		Mappings([]dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{
			Type:    dashboard.MappingTypeValueToText,
			Options: map[string]dashboard.ValueMappingResult{"0": word("down", "red"), "1": word("up", "green")},
		}}})
}

func latest() *common.ReduceDataOptionsBuilder {
	return common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})
}

// colour tells the host's stages from the engine's, as the report's waterfall does.
func colour(s attribution.Stage) []dashboard.DynamicConfigValue {
	of := map[attribution.Stage]string{
		attribution.AcceptWait: "dark-red", attribution.WakeToRun: "red", attribution.RuntimeHandoff: "orange",
		attribution.Reader: "yellow", attribution.Engine: "blue", attribution.SendQueue: "purple",
		attribution.Unexplained: "#808080",
	}
	return []dashboard.DynamicConfigValue{{Id: "color", Value: map[string]any{"mode": "fixed", "fixedColor": of[s]}}}
}
