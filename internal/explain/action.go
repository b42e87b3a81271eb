package explain

import "github.com/everpost/everpost/internal/webhook"

// Act is something that a person can do about a situation.
type Act string

// The acts.
const (
	SendNow              Act = "send_now"                // a delivery that waits
	SendAgain            Act = "send_again"              // a delivery that has ended
	Discard              Act = "discard"                 // a dead letter
	ResumeEndpoint       Act = "resume_endpoint"         // one that is paused or disabled, or whose release is stopped
	TestEndpoint         Act = "test_endpoint"           // by one request, whatever its state
	CloseCircuit         Act = "close_circuit"           // try the endpoint at once
	SendEventsAgain      Act = "send_events_again"       // past events to an endpoint
	SendDeadLettersAgain Act = "send_dead_letters_again" // all of an endpoint
)

// Acts returns all acts.
func Acts() []Act {
	return []Act{
		SendNow, SendAgain, Discard, ResumeEndpoint, TestEndpoint, CloseCircuit, SendEventsAgain, SendDeadLettersAgain,
	}
}

// Action is an act and what it is done to. The sentence of a remedy names the act; each place offers it in its own
// way: the API with its call, the command line with a complete command, the console with a button.
type Action struct {
	Act      Act
	TenantID string
	ID       string // of the delivery or the endpoint; "" where Body says it
	// Body are the fields of the call's body; nil for none.
	Body map[string]string
}

// method is how an act is called: the path below the tenant is list/id/verb.
type method struct {
	verb, list, path string
	command          []string
}

func (a Act) method() method {
	switch a {
	case SendNow:
		return method{"POST", "deliveries", "retry", []string{"deliveries", "retry"}}
	case SendAgain:
		return method{"POST", "deliveries", "replay", []string{"deliveries", "replay"}}
	case Discard:
		return method{"POST", "dead-letters", "discard", []string{"dead-letters", "discard"}}
	case ResumeEndpoint:
		return method{"POST", "endpoints", "resume", []string{"endpoints", "resume"}}
	case TestEndpoint:
		return method{"POST", "endpoints", "test", []string{"endpoints", "test"}}
	case CloseCircuit:
		return method{"POST", "endpoints", "close-circuit", []string{"endpoints", "close-circuit"}}
	case SendEventsAgain:
		return method{"POST", "replays", "", []string{"replays", "create"}}
	case SendDeadLettersAgain:
		return method{"POST", "replays", "", []string{"replays", "create"}}
	}
	return method{}
}

// Call is the method and the path of the API's call; "" for an act that is not known.
func (a Action) Call() (verb, path string) {
	m := a.Act.method()
	if m.verb == "" {
		return "", ""
	}
	path = "/v1/tenants/" + a.TenantID + "/" + m.list
	for _, part := range []string{a.ID, m.path} {
		if part != "" {
			path += "/" + part
		}
	}
	return m.verb, path
}

// Command is the command line, word by word; nil for an act that is not known. No word needs quotes: ids, types of events and
// times have no blanks and nothing that a shell takes for its own.
func (a Action) Command() []string {
	m := a.Act.method()
	if m.command == nil {
		return nil
	}
	words := append([]string{"everpost"}, m.command...)
	if a.ID != "" {
		words = append(words, a.ID)
	}
	for _, f := range [...]struct{ field, flag string }{
		{"endpoint_id", "--endpoint"}, {"event_type", "--event-type"}, {"since", "--since"}, {"source", "--source"},
	} {
		if value, given := a.Body[f.field]; given {
			words = append(words, f.flag, value)
		}
	}
	return append(words, "--tenant", a.TenantID)
}

// deadLettersAgain sends all dead letters of an endpoint again.
func deadLettersAgain(tenantID string, id webhook.EndpointID) Action {
	return Action{Act: SendDeadLettersAgain, TenantID: tenantID, Body: map[string]string{"source": "dead_letters", "endpoint_id": id.String()}}
}

// toDelivery is an act with the delivery.
func (s *Situation) toDelivery(act Act) Action {
	return Action{Act: act, TenantID: s.Delivery.TenantID, ID: s.Delivery.DeliveryID.String()}
}

// toEndpoint is an act with the delivery's endpoint.
func (s *Situation) toEndpoint(act Act) Action {
	return Action{Act: act, TenantID: s.Delivery.TenantID, ID: s.Delivery.EndpointID.String()}
}

// toEndpoint is an act with the endpoint.
func (h health) toEndpoint(act Act) Action {
	return Action{Act: act, TenantID: h.Endpoint.TenantID, ID: h.Endpoint.ID.String()}
}
