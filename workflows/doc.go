// Package workflows is what a delivery does by itself: it tries, waits, tries
// again, obeys, and when it is given up it rests as a dead letter until someone
// brings it back.
//
// A delivery is one workflow id for all its life, delivery/<event id>/<endpoint id>.
// DeliveryWorkflow becomes DeadLetterWorkflow, and back, by continuing as the
// other under the same id, so that there is no moment in which nobody owns it.
//
// Inputs carry ids and progress, never payloads, URLs or secrets.
package workflows
