package console

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/everpost/everpost/client"
)

// testView is the form and the result of a test.
type testView struct {
	Form    form
	ID      string
	Name    string
	Attempt *client.Attempt
}

func showTest(p *page, f form, made *client.Attempt) error {
	var e client.Endpoint
	if err := p.get(&e, nil, "endpoints", p.r.PathValue("id")); err != nil {
		return err
	}
	return p.show(view{Template: "test", Title: "Test the endpoint", Entry: "Endpoints", Status: f.status(), Data: testView{f, e.ID, nameOf(e), made}})
}

func testForm() form { return newForm("type", "everpost.test", "payload", `{"test":true}`) }

func askTest(p *page) error { return showTest(p, testForm(), nil) }

func testEndpoint(p *page) error {
	f := testForm()
	payload := []byte(p.typed.Get("payload"))
	if !json.Valid(payload) {
		f, _ = f.refused(p.typed, wrong("payload", notJSON))
		return showTest(p, f, nil)
	}
	var made client.Attempt
	body, err := withPayload(map[string]any{"type": p.typed.Get("type")}, payload)
	if err != nil {
		return err
	}
	err = p.send(&made, http.MethodPost, body, "endpoints", p.r.PathValue("id"), "test")
	if err != nil {
		if f, err = f.refused(p.typed, err); err != nil {
			return err
		}
		return showTest(p, f, nil)
	}
	f.Values = url.Values{"type": p.typed["type"], "payload": p.typed["payload"]}
	return showTest(p, f, &made)
}
