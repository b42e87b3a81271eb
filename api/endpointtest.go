package api

import (
	"context"
	"net/http"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// testTime limits the response to a test, from when its body has been read: the longest
	// timeout of a receiver, and the time for the other work. The server's write timeout covers
	// the whole request, and receiving the body may already have used half of it.
	testTime = webhook.MaxTimeout + 15*time.Second

	testType    = "everpost.test"
	testPayload = `{"test":true}`
)

// EndpointTests sends test requests to endpoints.
type EndpointTests interface {
	// TestEndpoint sends one signed request immediately, in every state of the endpoint, and
	// returns the attempt, whose number is 0 and which has no run. It stores nothing except an
	// audit entry. CodeRateLimited: too many tests are under way.
	TestEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, eventType string, payload []byte) (webhook.Attempt, error)
}

// endpointTestHandler sends test requests.
type endpointTestHandler struct {
	tests      EndpointTests
	maxPayload int // bytes
}

func (h *endpointTestHandler) send(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	eventType, payload, err := readTestEvent(c, h.maxPayload)
	if err != nil {
		return err
	}
	_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(testTime)) // an error: the request has no connection, as in tests
	made, err := h.tests.TestEndpoint(c.Request().Context(), c.actor(), c.tenant, id, eventType, payload)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showAttempt(made))
}

// readTestEvent reads the event of a test. Absent fields have defaults.
func readTestEvent(c call, maxPayload int) (eventType string, payload []byte, err error) {
	eventType, payload = testType, []byte(testPayload)
	text, err := c.body()
	if text == nil || err != nil {
		return eventType, payload, err
	}
	err = readObject(text, func(d *jsonDecoder, name string) {
		switch name {
		case "type":
			set(d, &eventType, testType, readTestType)
		case "payload":
			payload = d.payload()
		default:
			d.unknown()
		}
	})
	if err == nil && len(payload) > maxPayload {
		err = tooLarge("payload", maxPayload, int64(len(payload)))
	}
	return eventType, payload, err
}

// readTestType reads any event type, including those of operational events.
func readTestType(d *jsonDecoder) string {
	text, ok := d.str()
	if ok && !webhook.ValidType(text) {
		d.note(notAType)
	}
	return text
}
