package api

import (
	"context"
	"net/http"
	"time"

	"github.com/everpost/everpost/internal/webhook"
)

const (
	// testTime is how long the answer to a test may take from when its body has been read:
	// as long as a receiver may, and what is done around it. The server's own limit is for
	// a request as a whole, of which sending the body may have used half.
	testTime = webhook.MaxTimeout + 15*time.Second

	testType    = "everpost.test"
	testPayload = `{"test":true}`
)

// EndpointTests sends requests that are only to find out whether a receiver takes them.
type EndpointTests interface {
	// TestEndpoint sends one signed request at once, whatever the endpoint's state, and
	// returns what it came to; nothing of it is recorded but that somebody did it. The
	// attempt has the number 0 and no run. CodeRateLimited: too many are under way.
	TestEndpoint(ctx context.Context, by webhook.Actor, tenantID string, id webhook.EndpointID, eventType string, payload []byte) (webhook.Attempt, error)
}

func (s *Server) testEndpoint(c call) error {
	id, err := pathID(c, webhook.ParseEndpointID)
	if err != nil {
		return err
	}
	eventType, payload, err := c.testEvent()
	if err != nil {
		return err
	}
	_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(testTime)) // an error: there is no limit
	made, err := s.Tests.TestEndpoint(c.Request().Context(), c.actor(), c.tenant, id, eventType, payload)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, showAttempt(made))
}

// testEvent reads what is to be sent: what is absent is the default.
func (c call) testEvent() (eventType string, payload []byte, err error) {
	eventType, payload = testType, []byte(testPayload)
	text, err := c.body()
	if text == nil || err != nil {
		return eventType, payload, err
	}
	err = readObject(text, func(d *door, name string) {
		switch name {
		case "type":
			set(d, &eventType, testType, readTestType)
		case "payload":
			payload = d.raw()
		default:
			d.unknown()
		}
	})
	if err == nil && len(payload) > webhook.MaxPayloadBytes {
		err = tooLarge("payload", webhook.MaxPayloadBytes)
	}
	return eventType, payload, err
}

// readTestType reads an event type: any, for a receiver of those that are Everpost's own can be tested too.
func readTestType(d *door) string {
	text, ok := d.str()
	if ok && !webhook.ValidType(text) {
		d.note(notAType)
	}
	return text
}
