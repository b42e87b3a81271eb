// Package workflows has the Temporal workflows: DeliveryWorkflow carries one open delivery, or several, DeadLetterWorkflow keeps those
// that were given up, and ReplayWorkflow sends a set of them again. TenantDeletionWorkflow deletes what a
// tenant has, and ProbeWorkflow shows that Temporal can be written to.
//
// The own workflow of a delivery has one id for each run, delivery/<event id>/<endpoint id>, and from the second on with its
// number. It continues as DeadLetterWorkflow under the same id, so that there is no
// moment without a workflow. The dead letters of a shared workflow, fanout/<...>, share one, dead/<its id>/<number>, which begins up to 10 s after the store
// names it. A replay opens another run in the store, and its start is that of any delivery. A workflow that finds another
// run in the store lets the delivery go. A held delivery has no workflow: it is only a row.
//
// Inputs carry ids and progress, never payloads, URLs or secrets.
//
// The files: delivery is the loop over the deliveries of a workflow, attempt its activity, member what a result or a command changes of
// one of them, without Temporal. delivery_store has steps and dead letters, delivery_signals what comes in, delivery_display what people
// see, delivery_input ids and inputs. deadletter and replay have loops of their own. signals, refusal, members and display serve all of
// them.
//
// # Rules
//
// Comments and tests name the rules that keep a delivery from being lost or sent twice. ADR 0005 has them in full.
//
//	R1   the outbox row goes with the first step or claim, or, after an eager request, once the start has been confirmed
//	R2   an attempt needs a fresh token or a claim, and every outcome is remembered
//	R3   an activity that runs again finds the attempt under way, or its result
//	R4   no workflow task waits longer than about 1 s for a receiver; the answers of slow ones are looked for
//	R5   a cancel never aborts a request, and delivered wins
//	R6   a step applies only if its (run, sequence) is greater
//	R7   a command is stored, then signalled; steps and claims return what is pending
//	R8   the store says which workflow has a delivery
//	R9   one bad row does not fail the others of a batch
//	R10  the reconciler finds open deliveries that no workflow has
//	R11  the order of stopping: nothing that is written to stops first
//
// # Changing a workflow
//
// Workflows live for up to 30 days, so that new code replays old histories. Keep the old way behind
// workflow.GetVersion. Record a history of the new way under a new name, and leave those of released
// versions as they are: see TestRecordedHistoriesReplay, and "Add a workflow change" in CONTRIBUTING.md. Before the first
// release nothing old is kept: histories that no longer replay are recorded again.
package workflows
