// SPDX-License-Identifier: Apache-2.0

// Package privileged keeps rights apart. The daemon starts a helper, which keeps the
// few capabilities that probes need, listens nowhere and answers typed verbs over an
// inherited socket; then the daemon gives up every right for good ([Become]).
//
// The package knows how the two talk and what each may; what the verbs do is their
// owner's business ([Verbs]).
package privileged
