package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/everpost/everpost/client"
)

// policyInput is the arguments of retry_policy_preview.
type policyInput struct {
	scope

	Policy any `json:"retry_policy,omitempty" jsonschema:"A preset's name such as fast, or an object such as {\"preset\":\"fast\",\"max_attempts\":5}. Without it: the policy of an endpoint that has none of its own."` //nolint:lll // a struct tag cannot be wrapped
}

// policyPreview is the result of retry_policy_preview.
type policyPreview struct {
	Policy   any             `json:"retry_policy" jsonschema:"The policy in full."`
	Attempts []policyAttempt `json:"attempts" jsonschema:"When each attempt starts, counted from the first. Cut if there are very many."`
	More     bool            `json:"more_attempts"`
}

// policyAttempt is when an attempt starts.
type policyAttempt struct {
	Number   int    `json:"number"`
	Earliest string `json:"earliest"`
	Nominal  string `json:"nominal"`
	Latest   string `json:"latest"`
}

// maxPolicyAttempts is how many attempts of a preview are shown.
const maxPolicyAttempts = 100

func (s *Server) addPolicyTool() {
	add(s, tool{
		name: "retry_policy_preview", title: "Preview a retry policy",
		description: "Shows when a retry policy makes its attempts, for a receiver that fails all the time. It changes nothing.",
	}, nil, previewPolicy)
}

func previewPolicy(ctx context.Context, c *call, in policyInput) (string, policyPreview, error) {
	body, err := json.Marshal(map[string]any{"retry_policy": in.Policy})
	if err != nil {
		return "", policyPreview{}, badArgument("retry_policy", "is not JSON")
	}
	// As it is, so that the API refuses a field that it does not know.
	answer, err := c.api.Do(ctx, client.Request{Method: http.MethodPost, Path: []string{"retry-policies", "preview"}, Body: body})
	if err != nil {
		return "", policyPreview{}, err
	}
	read, err := client.Decode[client.Preview](answer)
	if err != nil {
		return "", policyPreview{}, err
	}
	return fit(maxPolicyAttempts, func(n int) (string, policyPreview, error) {
		out := policyPreview{Policy: read.RetryPolicy, Attempts: []policyAttempt{}, More: len(read.Attempts) > n}
		lines := []string{plural(len(read.Attempts), "attempt", "attempts") + ", counted from the first:"}
		for _, a := range read.Attempts[:min(len(read.Attempts), n)] {
			out.Attempts = append(out.Attempts, policyAttempt{a.Number, a.Earliest, a.Nominal, a.Latest})
			lines = append(lines, fmt.Sprintf("%d after %s (between %s and %s)", a.Number, a.Nominal, a.Earliest, a.Latest))
		}
		if out.More {
			lines = append(lines, "and more")
		}
		return strings.Join(lines, "\n") + "\n", out, nil
	})
}
