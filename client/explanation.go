package client

// Explanation says in full why a delivery, an endpoint or an event is as it is. docs/explanations.md has a section for each code. Its texts
// are for people, and nil if there is nothing to say.
type Explanation struct {
	Code     string   `json:"code"`
	Brief    *string  `json:"brief"` // the deepest cause in a few words; nil if nothing is wrong
	Cause    *string  `json:"cause"`
	Next     *string  `json:"next"`     // what happens without intervention
	Remedy   *string  `json:"remedy"`   // what can be done
	Operator *string  `json:"operator"` // what only the operator of the installation can do
	Actions  []Action `json:"actions"`  // what the remedy names, in the order in which it is done
	Workflow *string  `json:"workflow"` // in which Temporal workflow a delivery is or was
	Until    Time     `json:"until"`    // when the situation changes by itself at the latest; null if no time is known
}

// Action is something that can be done about a situation, and the call that does it.
type Action struct {
	Act    string            `json:"act"` // such as "send_now" or "resume_endpoint"
	ID     *string           `json:"id"`  // of the delivery, endpoint or replay; nil for an action that makes a replay
	Method string            `json:"method"`
	Path   string            `json:"path"`
	Body   map[string]string `json:"body"` // what the body has to name; nil for none
}
