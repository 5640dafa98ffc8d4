// SPDX-License-Identifier: Apache-2.0

// Package plane tries the response plane from outside and at scale: lost processes and
// connections, frames that are cut, repeated or forged, consumers that do not read, and
// peers that mean harm. It has tests only; their short form takes seconds.
package plane
