package activities

import (
	"context"
	"time"

	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// maxBody bounds what is recorded of an answer, as Response.Body is bounded.
const maxBody = 16 << 10

// message is what a request is about.
type message struct {
	event     webhook.EventID
	delivery  webhook.DeliveryID
	eventType string
	created   time.Time // of the event
	number    int       // of the attempt; 0 for a test
}

// post makes one signed request and judges what it came to. Whatever is sent to a
// receiver is sent here. The attempt that it returns has no run, and no delay until
// the next one.
//
// An error means that nothing is known of the receiver: it ended because of us.
func post(ctx context.Context, sender Sender, now time.Time, target *webhook.Target, m message, payload []byte) (webhook.Attempt, error) {
	body := target.PayloadFormat.Body(m.eventType, m.created, payload) // what is signed is what is sent
	header, own, err := signed(m, target, body, now)
	if err != nil {
		return webhook.Attempt{}, err
	}
	policy, _ := target.PolicyInForce()
	response := sender.Send(ctx, Request{Target: target, Header: header, Body: body, Timeout: target.Timeout})
	if response.OwnFault {
		return webhook.Attempt{}, &ownFaultError{response.Err}
	}
	withoutEcho(&response, target.URL, header[:own])
	return webhook.Attempt{
		Number: m.number, StartedAt: now, Latency: response.Latency, Outcome: retry.Classify(response.Answer, policy), Error: response.Err,
		RequestHeaders: shown(header, own, target.Auth), ResponseHeaders: response.Header, ResponseBody: response.Body, Truncated: response.Truncated,
	}, nil
}

// withoutEcho removes from an answer what the endpoint's own header fields and its URL
// hold, which may be credentials, if the receiver repeats it. What auth made the Sender
// has removed.
func withoutEcho(r *Response, url string, own [][2]string) {
	echoes := webhook.EchoesOfHeader(own...).And(webhook.EchoesOfURL(url))
	if len(echoes) == 0 {
		return
	}
	echoes.RedactHeader(r.Header)
	r.Body = echoes.RedactText(r.Body, r.Truncated || r.Answer.Fault != retry.FaultNone)
	if len(r.Body) > maxBody {
		r.Body, r.Truncated = r.Body[:maxBody], true
	}
}

// ownFaultError is a request that ended because of us; it holds no part of the URL.
type ownFaultError struct{ text string }

func (e *ownFaultError) Error() string { return e.text }
