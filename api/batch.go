package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/http"
	"strconv"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// postBatch takes the events of a batch in.
func (h *eventHandler) postBatch(c call) error {
	key, err := idempotencyKey(c.Request().Header)
	if err != nil {
		return err
	}
	text, err := c.bodyUpTo(c.bodies.mostOfBatch)
	if err != nil {
		return err
	}
	b, err := parseBatch(text, h.now(), h.maxPayload)
	if err != nil {
		return err
	}
	b.TenantID, b.IdempotencyKey, b.BodySHA256 = c.tenant, key, sha256.Sum256(text)
	all, err := h.accept(c, len(b.Events), func(ctx context.Context) ([]webhook.Accepted, error) { return h.events.AcceptBatch(ctx, b) })
	if err != nil {
		return err
	}
	view := client.AcceptedBatch{Events: make([]client.AcceptedEvent, 0, len(all))}
	for _, a := range all {
		view.Events = append(view.Events, showAccepted(a))
	}
	return c.json(http.StatusAccepted, view)
}

// parseBatch parses the body of a batch. It copies the payloads, so that a delivery that waits
// does not keep the whole batch in memory.
func parseBatch(text []byte, now time.Time, maxPayload int) (webhook.NewBatch, error) {
	if text == nil {
		return webhook.NewBatch{}, webhook.Invalid("body", "is required")
	}
	r := batchReader{jsonDecoder: newJSONDecoder(text), now: now, maxPayload: maxPayload, firstIndex: map[string]int{}}
	r.object(func(name []byte) {
		if string(name) == "events" {
			r.readEvents()
		} else {
			r.unknown()
		}
	}, "events")
	r.end()
	if len(r.large) > 0 {
		return webhook.NewBatch{}, &webhook.Error{Code: webhook.CodeTooLarge, Fields: r.large}
	}
	if err := r.problem(); err != nil {
		return webhook.NewBatch{}, err
	}
	for i := range r.events {
		r.events[i].Payload = bytes.Clone(r.events[i].Payload)
	}
	return webhook.NewBatch{Events: r.events}, nil
}

// batchReader reads the events of a batch.
type batchReader struct {
	*jsonDecoder

	now        time.Time
	maxPayload int // bytes
	events     []webhook.NewEvent
	firstIndex map[string]int // by external id: the index of the first event that has it
	large      []webhook.FieldError
}

func (r *batchReader) readEvents() {
	count := r.array(func(i int) {
		if i == webhook.MaxBatchEvents {
			r.noteParent("has more than " + strconv.Itoa(webhook.MaxBatchEvents) + " entries")
		}
		if i >= webhook.MaxBatchEvents {
			r.skip()
			return
		}
		r.readEvent(i)
	})
	if count == 0 {
		r.note("must hold at least one event")
	}
}

func (r *batchReader) readEvent(i int) {
	r.next()
	start := r.pos
	e := readEvent(r.jsonDecoder, r.now)
	if r.broken {
		return
	}
	e.BodySHA256 = sha256.Sum256(r.text[start:r.pos])
	if len(e.Payload) > r.maxPayload {
		r.large = append(r.large, overLimit(r.path()+".payload", r.maxPayload, int64(len(e.Payload))))
	}
	if first, twice := r.firstIndex[e.ExternalID]; twice {
		r.noteIn("external_id", "is the same as that of events["+strconv.Itoa(first)+"] too")
	} else if e.ExternalID != "" {
		r.firstIndex[e.ExternalID] = i
	}
	r.events = append(r.events, e)
}
