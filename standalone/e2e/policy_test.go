package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/receivertest"
)

// inherited are the fields of an endpoint that has no policy of its own.
func inherited() fieldsOf { return fieldsOf{"retry_policy": nil} }

// requirePolicy requires whose policy an endpoint follows, and how many attempts it makes.
func (b *bundle) requirePolicy(id, whose string, attempts int) {
	b.t.Helper()
	var got struct {
		Policy struct {
			MaxAttempts int `json:"max_attempts"`
		} `json:"retry_policy"`
		Source string `json:"retry_policy_source"`
	}
	b.ask(http.StatusOK, http.MethodGet, "/endpoints/"+id, nil, &got)
	require.Equal(b.t, whose, got.Source)
	require.Equal(b.t, attempts, got.Policy.MaxAttempts)
}

// An endpoint follows the installation's policy, its tenant's once that has one, and its own
// once it has: each delivery is given up after as many attempts as that says.
func TestPoliciesOfInstallationAndTenant(t *testing.T) {
	t.Parallel()
	in := ownInstance(t, settings{"EVERPOST_RETRY_POLICY": `{"strategy":"fixed","base":"100ms","jitter":"none","max_attempts":2}`})
	b, r := newBundle(t, in, in.client(), "acme"), newReceiver(t)
	r.Default(receivertest.Step{Status: 500})
	e := b.endpoint(r, "/hook", inherited())
	giveUp := func(attempts int) {
		t.Helper()
		_, d := b.postOne("order.paid", `{}`)
		d = b.waitState(d.ID, "dead_lettered")
		require.Equal(t, attempts, d.Attempts)
		require.Equal(t, "max_attempts", *d.Reason)
	}
	b.requirePolicy(e.ID, "installation", 2)
	giveUp(2)

	policy := func(attempts int) fieldsOf {
		return fieldsOf{"strategy": "fixed", "base": "100ms", "jitter": "none", "max_attempts": attempts}
	}
	b.ask(http.StatusOK, http.MethodPut, "", fieldsOf{"name": "Acme", "retry_policy": policy(3)}, nil)
	b.requirePolicy(e.ID, "tenant", 3)
	giveUp(3)
	b.ask(http.StatusOK, http.MethodPatch, "/endpoints/"+e.ID, fieldsOf{"retry_policy": policy(4)}, nil)
	b.requirePolicy(e.ID, "endpoint", 4)
	giveUp(4)
	b.ask(http.StatusOK, http.MethodPatch, "/endpoints/"+e.ID, fieldsOf{"retry_policy": nil}, nil)
	b.requirePolicy(e.ID, "tenant", 3)
	giveUp(3)
}

// A 404 is retried by the ambiguous delays, and given up when they are used up.
func TestAmbiguousDelays(t *testing.T) {
	t.Parallel()
	b, r := setup(t), newReceiver(t)
	r.Default(receivertest.Step{Status: 404})
	policy := quickly()
	policy["base"], policy["ambiguous_delays"] = "10ms", []string{"200ms", "1s"}
	b.endpoint(r, "/hook", fieldsOf{"retry_policy": policy})
	e, d := b.postOne("order.paid", `{}`)
	d = b.waitState(d.ID, "dead_lettered")
	require.Equal(t, "ambiguous_limit", *d.Reason)
	attempts, requests := b.attempts(d.ID), r.of(e.ID)
	require.Len(t, attempts, 3)
	require.Len(t, requests, 3)
	for i, least := range []time.Duration{180 * time.Millisecond, 900 * time.Millisecond} {
		require.GreaterOrEqual(t, requests[i+1].ReceivedAt.Sub(requests[i].ReceivedAt), least-50*time.Millisecond)
		require.Equal(t, "ambiguous", *attempts[i].DelaySource)
	}
}
