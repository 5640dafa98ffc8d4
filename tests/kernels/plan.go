// SPDX-License-Identifier: Apache-2.0

package kernels

// PlanPath is where the guest's init finds its Plan.
const PlanPath = "/etc/plan.json"

// Plan is what the guest's init is told to do.
type Plan struct {
	Args    []string `json:"args"`    // the program and its arguments
	Env     []string `json:"env"`     // added to PATH and HOME
	Modules []string `json:"modules"` // files, in the order of loading
}

// The lines of the serial console that are ours begin with one of these marks;
// every other line is the kernel's. A line of the program keeps its own line, so
// what the kernel prints between two of them corrupts neither.
const (
	MarkStart = "@guest start"  // the program starts
	MarkExit  = "@guest exit "  // followed by its exit code; nothing of it comes later
	MarkError = "@guest error " // init could not run it, and why
	MarkOut   = "@1 "           // a line of its standard output
	MarkErr   = "@2 "           // a line of its standard error
)
