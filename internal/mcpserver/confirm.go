package mcpserver

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// question is the name of the one thing that a client is asked.
const question = "confirm"

// confirmation is the arguments by which a client without elicitation confirms.
type confirmation struct {
	Confirm bool   `json:"confirm,omitempty" jsonschema:"Only for clients that cannot ask their user: true after the user has agreed."`
	Expect  string `json:"expect,omitempty" jsonschema:"With confirm: what the refusal without it names, to show that the right thing is meant."`
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
	about, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode the arguments: %w", err)
	}
	subject := strings.Join([]string{req.Params.Name, c.tenant, c.caller, string(about)}, "\x00")
	if answered, ok := req.Params.InputResponses[question]; ok {
		count, valid := s.seal.open(req.Params.RequestState, subject, time.Now())
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
		return nil, nil //nolint:nilnil // nothing to ask and nothing wrong: it is confirmed
	}
	if canAsk(req) {
		return &mcp.CallToolResult{
			InputRequests: mcp.InputRequestMap{question: &mcp.ElicitParams{
				Mode: "form", Message: plan.text, RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}},
			}},
			RequestState: s.seal.close(subject, plan.count, time.Now()),
		}, nil
	}
	if in, can := in.(confirmed); can && in.given().Confirm && plan.matches(in.given().Expect) {
		return nil, nil //nolint:nilnil // as above
	}
	return nil, notDoneError(fmt.Sprintf("this needs a confirmation.\n%s\nRemedy: Ask the user. If they agree, call the tool again with "+
		"confirm: true and expect: %s (%s).", plan.text, strconv.Quote(plan.expect), plan.what))
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

func (s sealer) sum(head, subject string) string {
	h := hmac.New(sha256.New, s.key)
	_, _ = h.Write([]byte(head + "\x00" + subject))
	return hex.EncodeToString(h.Sum(nil))
}
