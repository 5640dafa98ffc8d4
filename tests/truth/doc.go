// SPDX-License-Identifier: Apache-2.0

// Command truth disturbs real servers by delays that the servers measure
// themselves, and checks that the agent books each delay in its stage.
//
// Each sample is a pair: a disturbed exchange and an undisturbed one, in random
// order. The score of a case is the change of the stage between the two, summed
// over all pairs, divided by the change of what was injected.
package main
