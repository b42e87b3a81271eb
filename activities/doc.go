// Package activities has the activities of the workflows: the attempt of a delivery, from the
// first check to the recording of its outcome, and the steps that are only recorded.
//
// A receiver's refusal is a value. An error is an internal fault: nothing is known of the
// receiver, and no attempt is counted.
//
// The files, from the bottom up, where each uses those before it only:
//
//	input                     what is known of an attempt that is to be made, and its result
//	fault                     internal faults, and what is known of an outage of the store
//	redirect, sign, post      one signed request
//	reused, late, step        ends of kept connections, attempts that are late, the step that follows an attempt
//	decide                    what becomes of an attempt
//	execution                 the attempts that this process makes or has made
//	process                   what all attempts of a process share
//	claim, eager_request      claims of requests that take long, requests that no workflow has asked for
//	payload_room              the memory of payloads
//	attempt                   an attempt on its way through the stages
//	load, admit, right, send  the stages
//	record                    what follows from them, in the store
//	execute                   the way through the stages
//	attempts                  the activity that makes attempts
//	steps, dead_letter,       the other activities
//	replay, refused_signals,
//	tenant_deletion
//	eager                     the first requests of new deliveries, for the intake
//	endpoint_check            checks of endpoints with internal faults, for the recovery
//	test_request              test requests, for the API
//	activities                makes them all
//
// # The stages of an attempt
//
// An attempt goes through the stages below (pass, in execute.go). Each stage adds to what is known
// of the attempt. Where it may end, decide, a pure function, either lets the attempt go on or says how
// it ends: with a step to record, or with an answer without a step. An internal fault ends it, too. All
// ends lead to finish, the only exit, which records a step once. Beside it internal
// faults are recorded (recordFault), which are no attempts.
//
//	  Attempts                      SendEagerly
//	      │                              │
//	      ▼                              │ the same checks, in memory
//	┌───────────┐ is it made elsewhere?  │
//	│   load    │ a known fault,         │
//	└─────┬─────┘ the endpoint           │
//	      ▼                              ▼
//	┌───────────┐ permit,          ┌───────────┐
//	│   admit   │ or a time        │TryAcquire │
//	└─────┬─────┘ to come back     └─────┬─────┘
//	      ▼                              ▼
//	┌───────────┐ fresh token,     ┌───────────┐
//	│ takeRight │ or claim         │ takeFresh │
//	└─────┬─────┘                  └─────┬─────┘
//	      ├◀─────────────────────────────┘
//	      ▼
//	┌───────────┐
//	│   begin   │ the endpoint's rate
//	└─────┬─────┘
//	      ▼
//	┌───────────┐
//	│   send    │ the request, and the retry policy
//	└─────┬─────┘
//	      ▼
//	┌───────────┐
//	│  finish   │ step or answer
//	└───────────┘
//
// An attempt that is likely to be admitted soon goes through takeRight before admit, so that it does not
// occupy a slot of its endpoint for as long as a claim takes (isNear, in admit.go). If it is deferred
// after all, the step ends the claim.
//
// If the request has met the end of a kept connection, the attempt is recorded and a second pass
// begins at takeRight, with the permit of the first.
//
// # When the process dies
//
// Temporal repeats a workflow task after 10 s, on another worker. It is not the workflow's first
// task then, so no fresh token is taken: the attempt asks the store for a claim. What the store
// says decides, and it depends on how far the process came:
//
//	the process died          in the store       the attempt goes on             sent again
//	before takeRight          nothing            with the repeated task          no, for the first time
//	after a fresh token       nothing            with the repeated task          if it was sent
//	after a claim             the claim          when the claim has ended        if it was sent
//	while it is looked for    the claim          when the claim has ended        if it was sent
//	answered, not recorded    the claim, if any  as before the answer            yes
//	recorded                  the step           the repeated task finds it      no
//
// "Sent again" is the same attempt with the same number and the same webhook-id: a receiver may get
// it twice, but never misses it. A claim ends at
//
//	claim + timeout of the request + claimSlack
//	claim + admissionTime + timeout of the request + claimSlack   if it was made before admission
//
// It is made before the request begins, or while it runs (claimSlow, leaveRunning). So it outlasts
// the request, and claimSlack is the time to record the outcome. No process sends while another
// one has a claim. With its end, the right to send is free, whether or not the process is dead.
//
// An eager request has no workflow yet that could repeat it. The outbox row stands for it:
//
//	the process died          in the store          goes on
//	not recorded              outbox row            the relay starts a workflow, which claims
//	slow                      outbox row, claim     the same; the workflow waits for the claim
//	recorded, not delivered   outbox row, step      the relay starts a workflow, which finds the step
//	recorded, delivered       step                  nothing is left to be done
//
// The relay takes a row 8 s after its event was stored. By then a request without a claim cannot be
// on its way: the token lives 3 s at most, the request is slow after FastWait, and its claim has as long:
//
//	3 s + 2 × FastWait = 5 s < 8 s
//
// A process that lives sends no attempt twice: executions remembers what it has made, and an
// outcome that the store could not take is recorded by the next call, which sends nothing.
package activities
