// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/privileged"
)

// TestOpenRequest: the helper is told what the daemon wants, and takes nothing else.
func TestOpenRequest(t *testing.T) {
	want := Options{
		Watch: Watch{Ports: []uint16{8000}, AllowNone: true}, Objectives: bpf.Objectives{TTFT: time.Second},
		ExactAccept: true, NoContent: true, NoSendStart: true, NoSched: true, NoBPF: true,
	}
	more := want
	more.NoTrace, more.TraceAll, more.SampleCosts, more.Only = true, true, true, map[string]string{"left": "x"}
	more.OnTrace, more.Log = func(*attribution.Trace) {}, slog.New(slog.DiscardHandler)
	body, err := json.Marshal(&more)
	if err != nil {
		t.Fatal(err)
	}
	var got Options
	if err := privileged.Decode(body, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the helper is told %+v, %v", got, err)
	}
	for _, bad := range []string{`{"TraceAll":true}`, `{"Only":{"left":"x"}}`, `{"Host":{}}`, `{"-":true}`} {
		if err := privileged.Decode([]byte(bad), new(Options)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
