package activities

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
)

// maxBody bounds the recorded part of a response body, as egress does.
const maxBody = egress.MaxStoredBytes

// message identifies what a request carries.
type message struct {
	event     webhook.EventID
	delivery  webhook.DeliveryID
	eventType string
	created   time.Time // of the event
	number    int       // of the attempt; 0 for a test request
}

// post makes one signed request and classifies its response. Every request to a receiver is made
// here. The attempt that it returns has no run and no delay. reusedEnded is egress.Response's.
//
// An error is an internal fault: nothing is known of the receiver.
func post(ctx context.Context, sender Sender, now time.Time, target *webhook.Target, m message, payload []byte,
) (made webhook.Attempt, reusedEnded bool, err error) {
	body := target.PayloadFormat.Body(m.eventType, m.created, payload) // what is signed is what is sent
	span := tracing.Receiver(ctx, target.URL)
	defer func() { span.End(err) }()
	header, ownCount, err := signed(m, target, body, now, span.Trace())
	if err != nil {
		return webhook.Attempt{}, false, err
	}
	policy, _ := target.PolicyInForce()
	failpoint.Hit("send-before")
	response := sender.Send(ctx, egress.Request{
		EndpointID: target.ID.String(), TenantID: target.TenantID, Version: target.Version, URL: target.URL, Header: header, Body: body,
		Timeout: target.Timeout, MaxIdle: target.MaxInFlight, Auth: target.Auth, Certificate: target.Certificate,
	})
	failpoint.Hit("send-after")
	if response.InternalFault {
		return webhook.Attempt{}, false, &sendError{response.Err}
	}
	redactEchoes(&response, target.URL, header[:ownCount])
	outcome := retry.Classify(response.Answer, policy, target.SuccessStatuses...)
	span.Outcome(outcome)
	return webhook.Attempt{
		Number: m.number, StartedAt: now, Latency: response.Latency, Times: response.Times, Outcome: outcome,
		Error:          cmp.Or(response.Err, unasked(&response), redirect(target.URL, outcome.Status, response.Header)),
		RequestHeaders: recordedHeader(header, ownCount, target.Auth), ResponseHeaders: response.Header, ResponseBody: response.Body,
		Truncated: response.Truncated,
	}, response.ReusedEnded, nil
}

// unasked is an attempt's error if the receiver may have missed the client certificate; "" otherwise.
func unasked(r *egress.Response) string {
	if r.CertificateUnasked {
		return webhook.CertificateUnasked
	}
	return ""
}

// request makes the request, and ends the permit with its outcome, unless isReused. An error that is not caused by
// the end of this process would meet every request to the endpoint.
func (a *Activities) request(ctx context.Context, att *attempt) (webhook.Attempt, error) {
	in, target, content := &att.in, att.facts.target, att.facts.content
	about := message{in.EventID, in.DeliveryID, in.EventType, content.CreatedAt, in.Attempts + 1}
	made, reusedEnded, err := post(ctx, a.sender, a.now(), target, about, content.Payload)
	if err != nil {
		fault := &internalError{error: fmt.Errorf("attempt %d of %s: %w", in.Attempts+1, in.DeliveryID, err), text: err.Error()}
		if ctx.Err() == nil {
			fault.scope = scopeEndpoint
			a.log.WarnContext(ctx, "internal fault", "delivery", in.DeliveryID, "endpoint", in.EndpointID, "error", err)
		}
		return webhook.Attempt{}, fault
	}
	if made.Outcome.Reason == retry.ReasonProxyRefused && !refusedLong(in, target, a.now()) {
		return webhook.Attempt{}, &internalError{error: &sendError{made.Error}, text: made.Error, scope: scopeEndpoint}
	}
	made.WaitedFor, made.Late = in.waitedFor(), in.late(content.CreatedAt, in.runBegan(target), made.StartedAt, att.admitting)
	if reusedEnded && !a.hasReused(ctx, in) {
		return asReused(made), nil // nothing is known of the receiver
	}
	result := admission.ResultOf(made.Outcome, in.numberForAdmission(), made.Latency)
	policy, _ := target.PolicyInForce()
	result.DeferFor = min(result.DeferFor, policy.MaxRetryAfter)
	result.Error, result.Times = made.Error, made.Times
	att.permit.Done(result)
	return made, nil
}

// refusedFor is for how long after its acceptance, or its replay, a delivery is held because the egress proxy refuses the host. Afterwards
// the refusal counts as a failure of the receiver, so that an endpoint which the proxy never allows is disabled in the end.
const refusedFor = 24 * time.Hour

// refusedLong reports whether a delivery has waited for so long.
func refusedLong(in *AttemptInput, target *webhook.Target, now time.Time) bool {
	return now.Sub(in.runBegan(target)) > refusedFor
}

// runBegan is when the run began, which follows from the give-up time; after a change of the policy it is off by as much.
func (in *AttemptInput) runBegan(target *webhook.Target) time.Time {
	policy, _ := target.PolicyInForce()
	return in.GiveUpAt.Add(-policy.GiveUpAfter)
}

// redactEchoes removes from a response the values of the endpoint's own header fields and of its
// URL, which may be credentials, if the receiver repeats them. The sender has removed those of
// the endpoint's auth.
func redactEchoes(r *egress.Response, url string, own [][2]string) {
	echoes := webhook.EchoesOfHeader(own...).And(webhook.EchoesOfURL(url))
	if len(echoes) == 0 {
		return
	}
	echoes.RedactHeader(r.Header)
	r.Body = echoes.RedactText(r.Body, r.Truncated || r.Answer.Failure != retry.FailureNone)
	if len(r.Body) > maxBody {
		r.Body, r.Truncated = r.Body[:maxBody], true
	}
}

// sendError is an internal fault of the sender. It contains no part of the URL.
type sendError struct{ text string }

func (e *sendError) Error() string { return e.text }
