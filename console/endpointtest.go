package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/everpost/everpost/internal/webhook"
)

// testView is the form and the result of a test.
type testView struct {
	Form    form
	ID      string
	Name    string
	Attempt *attempt
}

func (p *page) showTest(f form, made *attempt, status int) error {
	var e endpoint
	if err := p.get(&e, nil, "endpoints", p.r.PathValue("id")); err != nil {
		return err
	}
	return p.show(view{Template: "test", Title: "Test the endpoint", Entry: "Endpoints", Status: status, Data: testView{f, e.ID, nameOf(e), made}})
}

func testForm() form { return newForm("type", "everpost.test", "payload", `{"test":true}`) }

func askTest(p *page) error { return p.showTest(testForm(), nil, http.StatusOK) }

func testEndpoint(p *page) error {
	f := testForm()
	payload := []byte(p.typed.Get("payload"))
	if !json.Valid(payload) {
		f, _ = f.refused(p.typed, &problem{Status: http.StatusBadRequest, Fields: wrongPayload()})
		return p.showTest(f, nil, http.StatusBadRequest)
	}
	var made attempt
	body, err := withPayload(map[string]any{"type": p.typed.Get("type")}, payload)
	if err != nil {
		return err
	}
	err = p.send(&made, http.MethodPost, body, "endpoints", p.r.PathValue("id"), "test")
	if err != nil {
		if f, err = f.refused(p.typed, err); err != nil {
			return err
		}
		return p.showTest(f, nil, http.StatusBadRequest)
	}
	f.Values = url.Values{"type": p.typed["type"], "payload": p.typed["payload"]}
	return p.showTest(f, &made, http.StatusOK)
}

// wrongPayload is what is wrong with a payload that is not JSON.
func wrongPayload() []webhook.FieldError {
	return []webhook.FieldError{{Field: "payload", Message: "is not valid JSON"}}
}

// withPayload is the JSON object of fields and a payload, whose bytes stay as they are.
func withPayload(fields map[string]any, payload []byte) (json.RawMessage, error) {
	head, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode a form: %w", err)
	}
	head = bytes.TrimSuffix(head, []byte("}"))
	if len(fields) > 0 {
		head = append(head, ',')
	}
	return append(append(append(head, `"payload":`...), payload...), '}'), nil
}
