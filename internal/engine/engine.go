// Package engine is the only one that uses Temporal's client for deliveries. It starts, signals, inspects and ends their workflows, and
// knows whether Temporal is available.
//
// No call to Temporal has to succeed. Who needs its effect has a row in PostgreSQL, and repeats a call that was not made, was not answered,
// or was lost with the process: see package recovery. Only gatherings have none, whose workflow shows what was
// delivered. A repeated start has the same workflow id, and only one workflow of an id can run.
//
// A method that returns an error makes its calls with the caller's context: use it within Calls.Try, which bounds it and notes what its error
// says of Temporal. One that returns none does so itself. Activities, which Temporal bounds, call Keep without it.
//
// The files, from the bottom up:
//
//	config           what an engine needs
//	lifetime         when nothing new may begin, and when calls under way are cut off
//	health           whether Temporal is available
//	calls            bounded calls
//	spans            the spans of starts
//	workflows        options, the start of a shared workflow, signals
//	inspect          how a workflow stands
//	revive           workflows that deliveries have lost
//	starts           the starts of workflows
//	commands         what people ask of a delivery
//	dead_letters     the workflows of its dead letters
//	replays          the workflows of replays
//	tenant_deletion  the workflow that deletes a tenant
//	engine           all of it
package engine

// Engine is all that a process does with Temporal, but its worker. Its lifetime is also that of the rooms that use it.
type Engine struct {
	Lifetime        *Lifetime
	Health          *Health
	Calls           *Calls
	Workflows       *Workflows
	Revivals        *Revivals
	Starts          *Starts
	Commands        *Commands
	DeadLetters     *DeadLetters
	Replays         *Replays
	TenantDeletions *TenantDeletions
}

// New returns an engine, which can be used at once. Start begins the check of Temporal.
func New(c Config) *Engine {
	c.setDefaults()
	lifetime := newLifetime()
	health := newHealth(&c, lifetime)
	calls := newCalls(lifetime, health)
	w := newWorkflows(&c)
	revivals := &Revivals{w, c.KeepDeadLetters}
	starts := newStarts(&c, revivals, calls)
	return &Engine{
		Lifetime: lifetime, Health: health, Calls: calls, Workflows: w, Revivals: revivals, Starts: starts,
		Commands: &Commands{w, revivals, starts, calls}, DeadLetters: &DeadLetters{w}, Replays: &Replays{w, calls},
		TenantDeletions: &TenantDeletions{c.Client, c.Namespace, calls},
	}
}

// Start begins to check whether Temporal is available. The check ends with the lifetime.
func (e *Engine) Start() { e.Lifetime.Go(e.Health.run) }
