package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// apiClient is the HTTP API, as an outsider sees it: the shapes below are written from
// the contract, not taken from the product.
type apiClient struct {
	base string // http://127.0.0.1:8080
	key  string
	http *http.Client
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// into decodes the body.
func (a answer) into(target any) error {
	if err := json.Unmarshal(a.body, target); err != nil {
		return fmt.Errorf("answer %d %q: %w", a.status, a.body, err)
	}
	return nil
}

// call sends a body (nil: none; a string as it is; anything else as JSON) and
// header fields given as name, value, name, value.
func (d *apiClient) call(ctx context.Context, method, path string, body any, header ...string) (answer, error) {
	var reader io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(body)
	default:
		text, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, d.base+path, reader)
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Authorization", "Bearer "+d.key)
	if reader != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := d.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, text}, err
}

// fieldsOf is a JSON object.
type fieldsOf map[string]any

type endpoint struct {
	ID     string `json:"id"`
	URL    string `json:"url"`
	State  string `json:"state"`
	Secret string `json:"secret"`
}

type event struct {
	ID         string     `json:"id"`
	ExternalID *string    `json:"external_id"`
	Type       string     `json:"type"`
	DeliverAt  *time.Time `json:"deliver_at"`
	Matched    int        `json:"matched"`
	Reason     *string    `json:"reason"`
	Deliveries []delivery `json:"deliveries"`
}

type delivery struct {
	ID            string     `json:"id"`
	EventID       string     `json:"event_id"`
	EndpointID    string     `json:"endpoint_id"`
	EventType     string     `json:"event_type"`
	State         string     `json:"state"`
	Reason        *string    `json:"reason"`
	Run           int        `json:"run"`
	Attempts      int        `json:"attempts"`
	LastOutcome   *outcome   `json:"last_outcome"`
	LastError     *string    `json:"last_error"`
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	GiveUpAt      *time.Time `json:"give_up_at"`
	CreatedAt     time.Time  `json:"created_at"`
	CompletedAt   *time.Time `json:"completed_at"`
	WorkflowID    string     `json:"workflow_id"`
	WorkflowURL   string     `json:"workflow_url"`
}

type outcome struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Status   int    `json:"status"`
}

type attempt struct {
	Number          int               `json:"number"`
	Run             int               `json:"run"`
	StartedAt       time.Time         `json:"started_at"`
	LatencyMS       int64             `json:"latency_ms"`
	Status          int               `json:"status"`
	Decision        string            `json:"decision"`
	Reason          string            `json:"reason"`
	Error           *string           `json:"error"`
	RetryAfterMS    *int64            `json:"retry_after_ms"`
	DelayMS         *int64            `json:"delay_ms"`
	DelaySource     *string           `json:"delay_source"`
	RequestHeaders  map[string]string `json:"request_headers"`
	ResponseHeaders map[string]string `json:"response_headers"`
	ResponseBody    string            `json:"response_body"`
}

type problem struct {
	Type   string `json:"type"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	State  string `json:"state"`
}

type page[T any] struct {
	Data       []T     `json:"data"`
	NextCursor *string `json:"next_cursor"`
}
