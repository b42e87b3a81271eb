package webhook

// MaxOutcomes is how many deliveries of an event are counted for a list of events.
const MaxOutcomes = 250

// EventOutcomes is how many deliveries of an event stand where.
type EventOutcomes struct {
	Delivered int
	Waiting   int // for their first attempt, a retry or a release
	Failed    int // given up, and maybe discarded
	Cancelled int
	More      bool // there are more than were counted
}

// Add counts deliveries in a state.
func (o *EventOutcomes) Add(s State, n int) {
	n = min(n, MaxOutcomes)
	switch s {
	case StateDelivered:
		o.Delivered += n
	case StatePending, StateRetrying, StateHeld:
		o.Waiting += n
	case StateDeadLettered, StateDiscarded:
		o.Failed += n
	case StateCancelled:
		o.Cancelled += n
	case stateCount:
	}
	o.More = o.More || o.Delivered+o.Waiting+o.Failed+o.Cancelled >= MaxOutcomes
}
