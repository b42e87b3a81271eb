package activities

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/everpost/everpost/internal/failpoint"
	"github.com/everpost/everpost/internal/webhook"
)

// admissionTime is added to the time of a claim before admission: the time in Acquire, and for its room.
const admissionTime = time.Second

// takeRight takes the right to send with the payload: a fresh token, or a claim, which it makes.
func (att *attempt) takeRight(ctx context.Context) outcome {
	in, f := &att.in, &att.facts
	if in.FirstTask && in.Run == 1 && in.Seq == 0 && in.Attempts == 0 {
		if f.content = att.takeFresh(ctx, in); f.content != nil {
			in.known = true
			att.payload.fit(f.content.Size())
			return att.decide(att.now())
		}
	}
	if in.Faults > 0 { // many deliveries may wait for the same outage to end
		if err := att.outage.lastError(att.now()); err != nil {
			return outcome{fault: err}
		}
	}
	span := f.target.Timeout
	if att.permit == nil {
		span += admissionTime
	}
	claimed, err := att.store.Claim(ctx, att.claim(in, span))
	if webhook.CodeOf(err) == webhook.CodeNotFound {
		f.unstored = true
		return att.decide(att.now())
	}
	if err != nil {
		return outcome{fault: att.internalFault(ctx, fmt.Sprintf("claim attempt %d of %s", in.Attempts+1, in.DeliveryID), err)}
	}
	failpoint.Hit("claim-after")
	att.outage.end()
	att.executions.markClaimed(att.exec)
	att.payload.fit(len(claimed.Payload) + webhook.HeaderSize(claimed.Headers))
	f.claim, f.content = &claimed, att.claimedContent(ctx, &claimed)
	out := att.decide(att.now())
	if out.goesOn() {
		in.adopt(&claimed)
	}
	return out
}

// claimedContent is the payload that a claim has read; nil if it was removed, or is not the one that was stored.
func (att *attempt) claimedContent(ctx context.Context, claimed *webhook.ClaimResult) *webhook.Content {
	switch {
	case claimed.Payload == nil:
		return nil
	case !intact(claimed.Payload, claimed.SHA256):
		att.log.ErrorContext(ctx, "a stored payload does not match its SHA-256 and was not sent", "delivery", att.in.DeliveryID, "event", att.in.EventID)
		return nil
	}
	return &webhook.Content{Payload: claimed.Payload, CreatedAt: claimed.EventAt, Headers: claimed.Headers, Sequence: claimed.Sequence}
}

// takeFresh takes the delivery's fresh token; nil if there is none.
func (p *process) takeFresh(ctx context.Context, in *AttemptInput) *webhook.Content {
	content, ok := p.fresh.Take(in.Ref)
	if !ok {
		return nil
	}
	if intact(content.Payload, content.SHA256[:]) {
		return &content
	}
	// The bytes changed in this process's memory. The stored payload may be intact; it is
	// checked too.
	p.log.ErrorContext(ctx, "a payload has changed in memory since it arrived and was not sent", "delivery", in.DeliveryID, "event", in.EventID)
	return nil
}

// intact reports whether there is a payload and it has its SHA-256.
func intact(payload, sum []byte) bool {
	got := sha256.Sum256(payload)
	return payload != nil && bytes.Equal(got[:], sum)
}
