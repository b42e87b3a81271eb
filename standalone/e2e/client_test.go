package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/everpost/everpost/client"
)

// apiClient is the HTTP API, as an outsider sees it.
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

// What the API answers.
type (
	endpoint    = client.Endpoint
	attempt     = client.Attempt
	problem     = client.Problem
	page[T any] = client.Page[T]
)

// event is an event whose deliveries a test follows.
type event struct {
	client.AcceptedEvent

	Deliveries []delivery `json:"deliveries"`
}

// delivery is a delivery with the texts that tests compare and pass on, "" for null.
type delivery struct {
	client.Delivery

	State       string `json:"state"`
	WorkflowID  string `json:"workflow_id"`
	WorkflowURL string `json:"workflow_url"`
}

// wordless is a delivery without what is said of it in words, which name the time that has passed.
func wordless(d delivery) delivery {
	d.Summary, d.Explanation = "", nil
	return d
}

// withoutWords is wordless for several.
func withoutWords(all []delivery) []delivery {
	kept := make([]delivery, len(all))
	for i := range all {
		kept[i] = wordless(all[i])
	}
	return kept
}
