package mcpserver

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// question is the name of the one thing that a client is asked.
const question = "confirm"

// confirmation is the arguments by which a client without elicitation confirms.
type confirmation struct {
	Confirm bool   `json:"confirm,omitempty" jsonschema:"Only for clients that cannot ask their user: true after the user has agreed."`
	Expect  string `json:"expect,omitempty" jsonschema:"With confirm: the text that the refusal of the same call without it names."`
}

func (c confirmation) given() confirmation { return c }

// confirmed is the arguments of a tool that changes something.
type confirmed interface{ given() confirmation }

// intent is what a call would do.
type intent struct {
	text   string // for the person who confirms: what would happen
	what   string // what expect has to name, such as "the host of the endpoint"
	expect string
	count  int // deliveries of a replay; expect is this number, or nearly. 0 for anything else
}

// confirm returns nil and nil if the call is confirmed, a result that asks, or an error that says what is
// missing.
func (s *Server) confirm(req *mcp.CallToolRequest, c *call, in any, plan intent) (*mcp.CallToolResult, error) {
	about, err := argumentsOf(in)
	if err != nil {
		return nil, err
	}
	subject, now := strings.Join([]string{req.Params.Name, c.tenant, c.caller, about}, "\x00"), time.Now()
	if answered, ok := req.Params.InputResponses[question]; ok {
		count, valid := s.seal.open(req.Params.RequestState, subject, now)
		reply, isReply := answered.(*mcp.ElicitResult)
		switch {
		case !valid || !isReply:
			return nil, notDoneError("the confirmation is not one for this call, or it is too old.\nRemedy: Call the tool again.")
		case reply.Action != "accept":
			return nil, notDoneError("the user did not agree.\nRemedy: Do not repeat the call unless the user asks for it.")
		case !plan.near(count):
			return nil, notDoneError(fmt.Sprintf("%s confirmed, and there are %d now.\nRemedy: Call the tool again.",
				plural(count, "delivery was", "deliveries were"), plan.count))
		}
		return nil, s.spent.use(req.Params.RequestState, now)
	}
	if canAsk(req) {
		return &mcp.CallToolResult{
			InputRequests: mcp.InputRequestMap{question: &mcp.ElicitParams{
				Mode: "form", Message: plan.text, RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}},
			}},
			RequestState: s.seal.close(subject, plan.count, now),
		}, nil
	}
	if in, can := in.(confirmed); can && in.given().Confirm {
		if named, valid := s.seal.named(in.given().Expect, subject, now); valid && plan.matches(named) {
			return nil, s.spent.use(in.given().Expect, now)
		}
	}
	return nil, notDoneError(fmt.Sprintf("this needs a confirmation.\n%s\nRemedy: Ask the user. If they agree, repeat the call with "+
		"confirm: true and expect: %s (%s, and a code).", plan.text, strconv.Quote(s.seal.code(subject, plan.expect, now)), plan.what))
}

// argumentsOf is the arguments of a call without its confirmation, as text.
func argumentsOf(in any) (string, error) {
	text, err := json.Marshal(in)
	if err != nil {
		return "", fmt.Errorf("encode the arguments: %w", err)
	}
	var about map[string]any
	if err := json.Unmarshal(text, &about); err != nil {
		return "", fmt.Errorf("read the arguments: %w", err)
	}
	delete(about, "confirm")
	delete(about, "expect")
	text, err = json.Marshal(about)
	return string(text), err
}

// spent are the confirmations that were used. Each is good for one call: a client that repeats a call because the
// answer was lost has to ask again.
type spent struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// maxSpent bounds the confirmations of confirmTimeout.
const maxSpent = 10_000

// use returns an error if the confirmation was used before.
func (u *spent) use(confirmation string, now time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.until, func(_ string, until time.Time) bool { return now.After(until) })
	_, used := u.until[confirmation]
	switch {
	case used:
		return notDoneError("the confirmation was used before.\nRemedy: See whether the first call has done it. If not, call the tool again.")
	case len(u.until) >= maxSpent:
		return notDoneError("too much was confirmed within a short time.\nRemedy: Try again in ten minutes.")
	}
	u.until[confirmation] = now.Add(confirmTimeout + time.Second) // a state's time has whole seconds
	return nil
}

// notDoneError is the error of a call that was not confirmed.
type notDoneError string

// Error implements error.
func (e notDoneError) Error() string { return "Not done: " + string(e) }

// canAsk reports whether the client can ask its user with a form. A client that names no kind of elicitation
// means forms.
func canAsk(req *mcp.CallToolRequest) bool {
	can := req.ClientCapabilities()
	return can != nil && can.Elicitation != nil && (can.Elicitation.Form != nil || can.Elicitation.URL == nil)
}

// near reports whether the count is about what was confirmed: dead letters come and go while a person reads.
func (i intent) near(confirmed int) bool {
	return max(i.count-confirmed, confirmed-i.count) <= max(10, confirmed/10)
}

// matches reports whether the client has named what is meant.
func (i intent) matches(expect string) bool {
	if i.count == 0 {
		return expect == i.expect
	}
	n, err := strconv.Atoi(expect)
	return err == nil && i.near(n)
}

// sealer makes the state that a client returns with its user's answer. The state binds the answer to the call
// that asked: the tool, its arguments, the tenant, the key and the count that was shown.
type sealer struct{ key []byte }

func newSealer() sealer {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return sealer{key}
}

// close returns a state that is valid for confirmTimeout.
func (s sealer) close(subject string, count int, now time.Time) string {
	head := strconv.FormatInt(now.Add(confirmTimeout).Unix(), 10) + "." + strconv.Itoa(count)
	return head + "." + s.sum(head, subject)
}

// open returns the count of a state, and whether the state is valid for the subject.
func (s sealer) open(state, subject string, now time.Time) (count int, valid bool) {
	parts := strings.Split(state, ".")
	if len(parts) != 3 || !hmac.Equal([]byte(parts[2]), []byte(s.sum(parts[0]+"."+parts[1], subject))) {
		return 0, false
	}
	until, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || now.Unix() > until {
		return 0, false
	}
	count, err = strconv.Atoi(parts[1])
	return count, err == nil
}

// codeSize is the length of a code's proof: enough against guesses by calls, and short to copy.
const codeSize = 10

// code returns what expect has to be: what the call is about, and a code that only this server can make. It is
// valid for confirmTimeout.
func (s sealer) code(subject, names string, now time.Time) string {
	until := strconv.FormatInt(now.Add(confirmTimeout).Unix(), 36)
	return names + "-" + until + "-" + s.sum(names+"-"+until, subject)[:codeSize]
}

// named returns what expect names, and whether its code is valid for the subject.
func (s sealer) named(expect, subject string, now time.Time) (names string, valid bool) {
	last := strings.LastIndexByte(expect, '-')
	if last < 0 || !hmac.Equal([]byte(expect[last+1:]), []byte(s.sum(expect[:last], subject)[:codeSize])) {
		return "", false
	}
	dash := strings.LastIndexByte(expect[:last], '-') // code has written one
	until, err := strconv.ParseInt(expect[dash+1:last], 36, 64)
	return expect[:max(dash, 0)], err == nil && now.Unix() <= until
}

func (s sealer) sum(head, subject string) string {
	h := hmac.New(sha256.New, s.key)
	_, _ = h.Write([]byte(head + "\x00" + subject))
	return hex.EncodeToString(h.Sum(nil))
}
