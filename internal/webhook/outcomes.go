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

// Add counts deliveries in a state, up to MaxOutcomes in all.
func (o *EventOutcomes) Add(s State, n int) {
	room := MaxOutcomes - o.Delivered - o.Waiting - o.Failed - o.Cancelled
	o.More = o.More || n > room
	n = min(n, room)
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
}
