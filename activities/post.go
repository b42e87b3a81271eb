package activities

import (
	"cmp"
	"context"
	"time"

	"github.com/everpost/everpost/internal/egress"
	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/tracing"
	"github.com/everpost/everpost/internal/webhook"
)

// maxBody bounds the recorded part of a response body, as egress does.
const maxBody = egress.MaxStoredBytes

// Sender makes one POST. A failure is a value.
type Sender interface {
	Send(ctx context.Context, r egress.Request) egress.Response
}

// post makes one signed request and classifies its response. Every request to a receiver is made
// here. The attempt that it returns has no run and no delay. reusedEnded is egress.Response's.
//
// An error is an internal fault: nothing is known of the receiver.
func post(ctx context.Context, sender Sender, now time.Time, target *webhook.Target, m message, payload []byte,
) (made webhook.Attempt, reusedEnded bool, err error) {
	body := target.PayloadFormat.Body(m.eventType, m.created, m.place, payload) // what is signed is what is sent
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
		RequestHeaders: recordedHeader(header, ownCount, m.headers, target.Auth), ResponseHeaders: response.Header, ResponseBody: response.Body,
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
