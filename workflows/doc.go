// Package workflows has the Temporal workflows: DeliveryWorkflow carries one delivery, FanoutWorkflow
// several, DeadLetterWorkflow keeps one that was given up, and ReplayWorkflow sends a set of them again.
//
// A delivery's own workflow has one id for all its life, delivery/<event id>/<endpoint id>.
// DeliveryWorkflow continues as DeadLetterWorkflow, and back, under the same id, so that there is no
// moment without a workflow. A held delivery has none: it is only a row.
//
// Inputs carry ids and progress, never payloads, URLs or secrets.
package workflows
